"""The files that are measured: made once, kept in a store of their own under ~/.cache/puna-bench."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.synthetic.gpt_oss import GPT_OSS_20B
from benchmarks.synthetic.model import SyntheticModel
from benchmarks.synthetic.qwen3 import QWEN3_4B, QWEN3_30B_A3B
from benchmarks.synthetic.qwen35 import QWEN35_4B
from benchmarks.synthetic.writing import write_model
from benchmarks.weights.variants import write_variant
from puna.chat.templates.model_templates import ModelTemplates
from puna.gguf import read_metadata
from puna.registry import ModelName, ModelNotFound, Store
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.pull import pull
from puna.worker.text.reading import read_record

STORE = Path.home() / ".cache" / "puna-bench"
_PUBLISHED = {"Q4_1": ModelName.parse("smollm2:135m"), "Gemma3": ModelName.parse("gemma3:270m")}
_SYNTHETIC: dict[str, SyntheticModel] = {
    "Qwen3-4B": QWEN3_4B.model(),
    "Qwen3.5-4B": QWEN35_4B.model(),
    "Qwen3-30B-A3B": QWEN3_30B_A3B.model(),
    "gpt-oss-20b": GPT_OSS_20B.model(),
}
_LARGE_BYTES = 1 << 30
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class BenchFile:
    """A model in a store, so that both servers read the same bytes."""

    title: str
    store: Path
    model: str
    path: Path

    @property
    def is_large(self) -> bool:
        return self.path.stat().st_size > _LARGE_BYTES


FILES = {
    "Q4_1": "SmolLM2-135M Q4_1",
    "Q4_0": "SmolLM2-135M Q4_0",
    "Q8_0": "SmolLM2-135M Q8_0",
    "Q4_K_M": "SmolLM2-135M Q4_K_M",
    "F16": "SmolLM2-135M F16",
    "Gemma3": "Gemma 3 270M Q4_K_M",
    "Qwen3-4B": "Qwen3-4B shape Q4_K_M, synthetic",
    "Qwen3.5-4B": "Qwen3.5-4B shape Q4_K_M, synthetic",
    "Qwen3-30B-A3B": "Qwen3-30B-A3B shape (8 layers) Q4_K_M, synthetic",
    "gpt-oss-20b": "gpt-oss-20b shape (6 layers) MXFP4, synthetic",
}
"""Name on the command line -> title in the table. Q4_1 and Gemma3 are as published, the others are made."""


def bench_file(name: str) -> BenchFile:
    """One of FILES, made first if it is not there."""
    store = Store(STORE)
    if (published := _PUBLISHED.get(name)) is not None:
        return BenchFile(FILES[name], STORE, published.short, _pulled(store, published))
    if (synthetic := _SYNTHETIC.get(name)) is not None:
        return _made(store, FILES[name], f"{name.lower()}:synthetic", partial(write_model, synthetic))
    source = _pulled(store, _PUBLISHED["Q4_1"])
    return _made(store, FILES[name], f"smollm2:135m-{name.lower()}", partial(_write_variant, source, name))


def synthetic_file(name: str, model: SyntheticModel) -> BenchFile:
    """A model that is in no table, made first if it is not there. name: in the store."""
    return _made(Store(STORE), model.title, name, partial(write_model, model))


def made_file(name: str, title: str, write: Callable[[Path], None]) -> BenchFile:
    """A model that `write` writes if it is not there. name: in the store."""
    return _made(Store(STORE), title, name, write)


def own_file(path: Path, store: Path) -> BenchFile:
    """A user's GGUF file, copied into the store."""
    _add(Store(store), ModelName.parse("bench"), path)
    return BenchFile(path.stem, store, "bench", path)


def _write_variant(source: Path, mixture: str, target: Path) -> None:
    write_variant(source, target, mixture)


def _made(store: Store, title: str, model: str, write: Callable[[Path], None]) -> BenchFile:
    parsed = ModelName.parse(model)
    try:
        path = store.find(parsed).model_path
    except ModelNotFound:
        print(f"making {title} ...", file=sys.stderr, flush=True)
        STORE.mkdir(parents=True, exist_ok=True)
        temporary = STORE / f"{parsed.model}.{os.getpid()}.tmp"
        try:
            write(temporary)
            path = _add(store, parsed, temporary)
        finally:
            temporary.unlink(missing_ok=True)
    return BenchFile(title, STORE, model, path)


def _add(store: Store, name: ModelName, path: Path) -> Path:
    with path.open("rb") as file:
        description = _describe(file.fileno())
    return create_from_gguf(store, name, store.add_blob(_chunks(path)), description).model_path


def _describe(descriptor: int) -> WeightsDescription:
    record = read_record(read_metadata(descriptor, "model"), ModelTemplates())
    return WeightsDescription(record.architecture, record.parameter_size, record.quantization)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _pulled(store: Store, name: ModelName) -> Path:
    try:
        return store.find(name).model_path
    except ModelNotFound:
        asyncio.run(_pull(store, name))
        return store.find(name).model_path


async def _pull(store: Store, name: ModelName) -> None:
    async def describe(descriptor: int) -> WeightsDescription:
        return _describe(descriptor)

    async for progress in pull(store, name, describe):
        if progress.completed is None:
            print(f"{name.short}: {progress.status}", file=sys.stderr, flush=True)
