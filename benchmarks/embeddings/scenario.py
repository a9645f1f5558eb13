"""What is measured, of MiniLM in one type of weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.embeddings.onnx_model import OnnxEncoder, quantize, write_onnx
from benchmarks.embeddings.texts import padded_batches, texts
from benchmarks.figures import Row, Target, seconds
from benchmarks.retrieval.files import RERANK, model_files
from benchmarks.retrieval.turn import Endpoint
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile
from benchmarks.weights.minilm import minilm_file
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer

_TITLE = "MiniLM-L6: texts to vectors, passages ranked"
_SLOTS = 4
_CONTEXT = 512
_BATCHES = (8, 16, 32, 64)
Vectors = NDArray[np.float32]
T = TypeVar("T")


def f32(setup: Setup) -> Findings:
    yield from _embed(setup, "F32", "F32", 1.0)


def q8_0(setup: Setup) -> Findings:
    yield from _embed(setup, "Q8_0", "best type", 1.3)


def rerank(setup: Setup) -> Findings:
    """100 passages of one query."""
    file = model_files()[RERANK]
    passages = texts(10 if setup.quick else 100, 40, 120)

    def rank(endpoint: Endpoint) -> None:
        endpoint.post("/v1/rerank", query="when does the office open", documents=passages)

    ours, theirs = _both(setup, file, "--reranking", lambda endpoint: _best_s(lambda: rank(endpoint), setup))
    yield Finding(
        _TITLE, Row("100 passages ranked", seconds(ours), seconds(theirs), theirs / ours, Target(2.0))
    )


def _embed(setup: Setup, weight_type: str, onnx_type: str, least: float) -> Findings:
    file, inputs = minilm_file(weight_type), texts(64 if setup.quick else 512, 10, 200)
    vectors: list[Vectors] = []

    def measure(endpoint: Endpoint) -> tuple[float, float]:
        many = _best_s(lambda: vectors.append(_vectors(endpoint, inputs)), setup)
        times = []
        for text in texts(20 if setup.quick else 200, 10, 30, seed=1):
            times.append(_time_s(lambda text=text: _vectors(endpoint, [text])))  # type: ignore[misc]
        return many, median(times)

    (many, single), (their_many, their_single) = _both(setup, file, "--embeddings", measure)
    name = f"{weight_type}: {len(inputs)} texts of 10 to 200 tokens"
    yield Finding(_TITLE, Row(name, seconds(many), seconds(their_many), their_many / many, Target(2.0)))
    row = Row(
        f"{weight_type}: p50 of a text",
        seconds(single),
        seconds(their_single),
        their_single / single,
        Target(2.0),
    )
    yield Finding(_TITLE, row)
    agreement = float((vectors[0] * vectors[-1]).sum(axis=1).min())
    yield Finding(_TITLE, Row(f"{weight_type}: least cosine to llama.cpp's", f"{agreement:.6f}"))
    onnx_s, best = _onnx(setup, inputs, only_f32=onnx_type == "F32")
    figure = f"{weight_type}: the same texts beside ONNX Runtime, {onnx_type} ({best}), sorted by length"
    yield Finding(_TITLE, Row(figure, seconds(many), seconds(onnx_s), onnx_s / many, Target(least)))


def _both(setup: Setup, file: BenchFile, flag: str, measure: Callable[[Endpoint], T]) -> tuple[T, T]:
    with puna_server(file, setup.threads) as ours:
        found = measure(Endpoint(ours.http, file.model))
    options = [flag, "--batch-size", "2048", "--ubatch-size", "2048"]
    context = _SLOTS * _CONTEXT
    with setup.peer.server(
        file, setup.threads, _SLOTS, "default", context_tokens=context, options=options
    ) as theirs:
        return found, measure(Endpoint(theirs.http, file.model))


def _vectors(endpoint: Endpoint, inputs: Sequence[str]) -> Vectors:
    reply = endpoint.post("/v1/embeddings", input=inputs)
    found = np.array([entry["embedding"] for entry in reply["data"]], np.float32)
    unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def _onnx(setup: Setup, inputs: Sequence[str], *, only_f32: bool) -> tuple[float, str]:
    """Seconds, and with which weights and batches."""
    file = minilm_file("F32")
    with GgufFile(file.path) as opened:
        tokenizer = load_tokenizer(opened.metadata)
    tokens = [tokenizer.encode(text) for text in inputs]
    results: list[tuple[float, str]] = []
    with _onnx_models(file.path) as models:
        for name, path in list(models.items())[: 1 if only_f32 else None]:
            encoder = OnnxEncoder(path, setup.threads)
            for size in _BATCHES:
                batches = padded_batches(tokens, size)

                def run(batches: list[list[int]] = batches, encoder: OnnxEncoder = encoder) -> None:
                    for batch in batches:
                        encoder.embed([tokens[i] for i in batch])

                results.append((_best_s(run, setup), f"{name}, batches of {size}"))
    return min(results)


@contextmanager
def _onnx_models(gguf: Path) -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        models = {"F32": Path(folder) / "f32.onnx", "int8": Path(folder) / "int8.onnx"}
        write_onnx(gguf, models["F32"])
        quantize(models["F32"], models["int8"])
        yield models


def _best_s(work: Callable[[], object], setup: Setup) -> float:
    """Of several times; the first is a warm-up."""
    return min([_time_s(work) for _ in range(2 if setup.quick else 5)][1:])


def _time_s(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
