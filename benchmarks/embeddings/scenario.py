"""What is measured, of MiniLM in one type of weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.embeddings.one_text import median_seconds
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

    with _both(setup, file, "--embeddings", "--pooling", "rank") as servers:
        ours, theirs = _best_in_turns([lambda e=e: rank(e) for e in servers], setup)  # type: ignore[misc]
    yield Finding(
        _TITLE, Row("100 passages ranked", seconds(ours), seconds(theirs), theirs / ours, Target(2.0))
    )


def _embed(setup: Setup, weight_type: str, onnx_type: str, least: float) -> Findings:
    file, inputs = minilm_file(weight_type), texts(64 if setup.quick else 512, 10, 200)
    with _both(setup, file, "--embeddings") as servers:
        agreement = float(np.prod([_vectors(e, inputs) for e in servers], axis=0).sum(axis=1).min())
        short = texts(20 if setup.quick else 400, 10, 30, seed=1)
        single, their_single = median_seconds(servers, short)
        work = [lambda e=e: _vectors(e, inputs) for e in servers]  # type: ignore[misc]
        many, their_many = _best_in_turns(work, setup)
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
    yield Finding(_TITLE, Row(f"{weight_type}: least cosine to llama.cpp's", f"{agreement:.6f}"))
    onnx_s, best = _onnx(setup, inputs, only_f32=onnx_type == "F32")
    figure = f"{weight_type}: the same texts beside ONNX Runtime, {onnx_type} ({best}), sorted by length"
    yield Finding(_TITLE, Row(figure, seconds(many), seconds(onnx_s), onnx_s / many, Target(least)))


@contextmanager
def _both(setup: Setup, file: BenchFile, *flags: str) -> Iterator[list[Endpoint]]:
    """Ours and theirs, to be asked in turns."""
    options = [*flags, "--batch-size", "2048", "--ubatch-size", "2048"]
    context = _SLOTS * _CONTEXT
    peer = setup.peer.server(file, setup.threads, _SLOTS, "default", context_tokens=context, options=options)
    with puna_server(file, setup.threads) as ours, peer as theirs:
        yield [Endpoint(server.http, file.model) for server in (ours, theirs)]


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

                results.append((*_best_in_turns([run], setup), f"{name}, batches of {size}"))
    return min(results)


@contextmanager
def _onnx_models(gguf: Path) -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        models = {"F32": Path(folder) / "f32.onnx", "int8": Path(folder) / "int8.onnx"}
        write_onnx(gguf, models["F32"])
        quantize(models["F32"], models["int8"])
        yield models


def _best_in_turns(works: Sequence[Callable[[], object]], setup: Setup) -> list[float]:
    """Seconds of each, the best of several rounds; the first is a warm-up."""
    rounds = [[_time_s(work) for work in works] for _ in range(2 if setup.quick else 5)]
    return [min(times) for times in zip(*rounds[1:], strict=True)]


def _time_s(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
