"""Runs a model in this process and takes the time of its steps."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import TracebackType

import msgspec

from puna.backends import open_device
from puna.backends.base import ModelInfo, ModelSource
from puna.backends.cpu.cores import usable_cores
from puna.bench.cost import Cost, model_cost
from puna.bench.machine import Roofs, measure_roofs
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.gguf import GgufFile
from puna.kv import BLOCK_TOKENS

PROMPT_TOKENS = 512
LONG_CONTEXT = 2048
BATCHES = (1, 4, 16)

_SHORT_CONTEXT = 16
_MIN_STEPS, _MAX_STEPS = 8, 64
_MIN_PROMPTS, _MAX_PROMPTS = 2, 20
_MODEL_ID = "model"


class BenchError(RuntimeError):
    """A measurement that could not be taken; the text says why."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table: `batch` sequences at once, each with `context` tokens before those measured."""

    kind: str
    """prefill or decode"""
    batch: int
    context: int

    @property
    def title(self) -> str:
        if self.kind == "prefill":
            return f"prefill, {PROMPT_TOKENS} tokens"
        of_batch = "1 stream" if self.batch == 1 else f"{self.batch} streams"
        return f"decode, {of_batch}" + (f", {self.context} tokens of context" if self.context else "")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over repetitions. Operations are those of the matrices; bytes are matrices and KV."""

    work: Work
    tokens_per_second: float
    ops_per_second: float
    bytes_per_second: float | None
    """None for prefill, where it limits nothing."""


class Bench:
    """One model on an engine of its own; a context manager.

    seconds: to spend on each line of the table, about; a slow model takes longer.
    Raises ModelLoadError, GgufError.
    """

    def __init__(
        self,
        path: Path,
        *,
        num_threads: int | None,
        kv_limit_bytes: int | None,
        kv_type: str = "f16",
        seconds: float = 2.0,
    ) -> None:
        with GgufFile(path) as file:
            self._cost: Cost = model_cost(file)
        self._seconds = seconds
        self._random = random.Random(0)
        self._ids = itertools.count()
        self.num_threads = num_threads or usable_cores()
        self._backend = open_device("cpu", self.num_threads, kv_type)
        self._core = EngineCore(self._backend, EngineSettings(kv_limit_bytes=kv_limit_bytes))
        try:
            with ModelSource.open(path) as source:
                self.info: ModelInfo = self._core.load_model(_MODEL_ID, source)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._core.close()
        self._backend.close()

    def roofs(self) -> Roofs:
        return measure_roofs(self.num_threads)

    def works(self) -> Iterator[Work]:
        """What fits the model's context."""
        works = [
            Work(kind="prefill", batch=1, context=0),
            *(Work(kind="decode", batch=batch, context=0) for batch in BATCHES),
            Work(kind="decode", batch=1, context=LONG_CONTEXT),
        ]
        for work in works:
            if work.kind == "decode" and self.info.is_encoder:
                continue
            needed = PROMPT_TOKENS if work.kind == "prefill" else (work.context or _SHORT_CONTEXT)
            if needed + self._new_tokens(work) <= self.info.context_length:
                yield work

    def run(self, work: Work) -> Result:
        """Raises BenchError."""
        return self._prefill(work) if work.kind == "prefill" else self._decode(work)

    def _prefill(self, work: Work) -> Result:
        self._time_prompt(PROMPT_TOKENS)  # brings the file into memory
        times: list[float] = []
        while len(times) < _MIN_PROMPTS or (sum(times) < self._seconds and len(times) < _MAX_PROMPTS):
            times.append(self._time_prompt(PROMPT_TOKENS))
        seconds = median(times)
        return Result(
            work=work,
            tokens_per_second=PROMPT_TOKENS / seconds,
            ops_per_second=self._cost.ops(PROMPT_TOKENS, 1) / seconds,
            bytes_per_second=None,
        )

    def _decode(self, work: Work) -> Result:
        context = work.context or _SHORT_CONTEXT
        ids = [self._submit(context, self._new_tokens(work)) for _ in range(work.batch)]
        waiting = set(ids)
        while waiting:
            waiting -= self._step()
        times: list[float] = []
        while len(times) < _MIN_STEPS or (sum(times) < self._seconds and len(times) < _MAX_STEPS):
            start = time.perf_counter()
            if len(self._step()) != work.batch:
                raise BenchError(f"there is not enough KV memory for {work.title}")
            times.append(time.perf_counter() - start)
        self._cancel(ids)
        seconds = median(times)
        kv_bytes = work.batch * (context + len(times) / 2) * self.info.block_bytes / BLOCK_TOKENS
        return Result(
            work=work,
            tokens_per_second=work.batch / seconds,
            ops_per_second=self._cost.ops(work.batch, work.batch) / seconds,
            bytes_per_second=(self._cost.bytes_read(work.batch) + kv_bytes) / seconds,
        )

    def _time_prompt(self, num_tokens: int) -> float:
        start = time.perf_counter()
        request_id = self._submit(num_tokens, 1)
        while request_id not in self._step():
            pass
        return time.perf_counter() - start

    def _submit(self, prompt_tokens: int, new_tokens: int) -> str:
        """Random tokens: no prompt begins like another one. No drafts: each token costs a step."""
        request_id = str(next(self._ids))
        self._core.submit(
            Request(
                id=request_id,
                model_id=_MODEL_ID,
                prompt=[self._random.randrange(self.info.vocab_size) for _ in range(prompt_tokens)],
                sampling=SamplingParams(temperature=0),
                max_tokens=new_tokens,
                pooling=self.info.pooling if self.info.is_encoder else None,
                num_draft=0,
            )
        )
        return request_id

    def _step(self) -> set[str]:
        """The requests that got a token, or their embedding."""
        outputs = self._core.step()
        for output in outputs:
            if output.finish_reason == "error":
                raise BenchError(output.error or "the model failed to run")
        return {output.request_id for output in outputs if output.tokens or output.embedding}

    def _cancel(self, ids: list[str]) -> None:
        for request_id in ids:
            self._core.cancel(request_id)
        self._core.step()
        self._core.trim()

    def _new_tokens(self, work: Work) -> int:
        """So many that none ends before the last measured step, though some start earlier than others."""
        if work.kind == "prefill":
            return 0 if self.info.is_encoder else 1
        return _MAX_STEPS + work.batch + 8
