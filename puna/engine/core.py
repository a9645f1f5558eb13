"""The engine: resident models, requests, and the step that moves them all on."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from puna._native import Arena, NativeError, SampleResult, sample_batch
from puna.backends.base import Backend, DeviceModel, ModelInfo, ModelLoadError
from puna.engine.batch import Slice, build_batch
from puna.engine.cache_policy import PrefixPolicy
from puna.engine.request import (
    EngineStats,
    FinishReason,
    ModelStats,
    Request,
    StepOutput,
    TokenLogprob,
)
from puna.engine.scheduler import Scheduler, Step
from puna.engine.sequence import Sequence, new_sampler
from puna.engine.sessions import ModelKv, Sessions
from puna.engine.settings import EngineSettings
from puna.engine.validation import InvalidRequest, check_request, context_limit
from puna.kv import BlockPool, Budget, PrefixCache, SequenceTable
from puna.kv.checkpoint import KvIdentity
from puna.kv.memory import default_kv_limit_bytes

_MAX_BLOCKS = 2**31 - 1  # block ids are int32

PRIORITY_S = 60.0
"""By how much earlier than it did a request counts as having come, for each step of its priority. So higher
ones go first, and yet the lowest does not wait for ever."""


@dataclass(frozen=True, slots=True)
class _Resident:
    """A loaded model and its KV memory."""

    device_model: DeviceModel
    arena: Arena
    pool: BlockPool
    cache: PrefixCache


class EngineCore:
    """Runs the requests of all resident models on one device.

    For one thread: whoever calls step() also calls everything else. Only backend.load() may run elsewhere,
    its result then given to attach_model().
    """

    def __init__(
        self,
        backend: Backend,
        settings: EngineSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds."""
        self.backend = backend
        self.settings = settings = settings or EngineSettings()
        self._clock = clock
        limit = settings.kv_limit_bytes
        self._budget = Budget(default_kv_limit_bytes() if limit is None else limit)
        self.sessions = Sessions()
        self._scheduler = Scheduler(settings, self.sessions)
        self._models: dict[str, _Resident] = {}
        self._sequences: dict[str, Sequence] = {}
        self._arrivals = itertools.count()
        self._outputs: list[StepOutput] = []  # of what happened between two steps

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do or to say."""
        return bool(self._outputs) or self._scheduler.has_work

    def load_model(self, model_id: str, path: Path) -> ModelInfo:
        """Raises ModelLoadError."""
        return self.attach_model(model_id, self.backend.load(path))

    def attach_model(self, model_id: str, device_model: DeviceModel, weight: float = 1.0) -> ModelInfo:
        """Makes a loaded model resident; from here on it is the engine's to close. Raises ModelLoadError.

        weight: its share of the device's time while other models have work, too, relative to theirs.
        """
        try:
            arena = self._reserve(model_id, device_model.info)
        except ModelLoadError:
            device_model.close()
            raise
        pool = BlockPool(arena, self._budget)
        cache = PrefixCache(pool)
        policy = PrefixPolicy(pool, cache, partial(device_model.move_kv, arena))
        self._models[model_id] = _Resident(device_model, arena, pool, cache)
        self._scheduler.add_model(model_id, pool, policy, weight)
        identity = _kv_identity(model_id, device_model.info)
        self.sessions.add_model(model_id, ModelKv(identity, arena, pool, cache))
        return device_model.info

    def unload_model(self, model_id: str) -> None:
        """Gives all of its memory back; its requests finish with an error. Unknown ids are ignored."""
        model = self._models.pop(model_id, None)
        if model is None:
            return
        for sequence in [s for s in self._sequences.values() if s.model_id == model_id]:
            self._outputs.append(self._finish(sequence, "error", "the model was unloaded"))
        self._scheduler.remove_model(model_id)
        self.sessions.remove_model(model_id)
        model.pool.close()
        model.device_model.close()

    def submit(self, request: Request) -> None:
        """Queues a request. One that cannot be run finishes with an error at the next step."""
        assert request.id not in self._sequences, f"request {request.id} is already there"
        try:
            sequence = self._new_sequence(request)
        except (InvalidRequest, NativeError) as error:
            self._outputs.append(StepOutput(request_id=request.id, finish_reason="error", error=str(error)))
            return
        self._sequences[request.id] = sequence
        self._scheduler.add(sequence)
        if sequence.max_tokens == 0:
            self._outputs.append(self._finish(sequence, "length"))

    def cancel(self, request_id: str) -> None:
        """Gives the request's blocks back at once. Requests that are already finished are ignored."""
        if sequence := self._sequences.get(request_id):
            self._outputs.append(self._finish(sequence, "cancelled"))

    def step(self) -> list[StepOutput]:
        """Computes the next tokens of one model's requests; what every request concerned got from it."""
        outputs, self._outputs = self._outputs, []
        step = self._scheduler.next_step()
        outputs += [self._finish(sequence, "busy") for sequence in self._scheduler.refused()]
        if step is not None:
            start_s = self._clock()
            outputs += self._execute(step)
            self._scheduler.account(step, self._clock() - start_s)
        return outputs

    def trim(self) -> None:
        """Gives memory that holds nothing back to the system: for when nothing is to be done."""
        for model in self._models.values():
            model.pool.trim()

    def drop_cached(self) -> None:
        """Forgets the KV that no sequence holds, and gives its memory back."""
        for model in self._models.values():
            model.pool.drop_cached()
        self.trim()

    def stats(self) -> EngineStats:
        return EngineStats(
            kv_limit_bytes=self._budget.limit_bytes,
            models=[
                ModelStats(
                    model_id=model_id,
                    num_running=len(self._scheduler.lane(model_id).running),
                    num_waiting=self._scheduler.num_waiting(model_id),
                    num_preemptions=self._scheduler.lane(model_id).num_preemptions,
                    used_kv_bytes=model.pool.num_used * model.pool.block_bytes,
                    cached_kv_bytes=model.pool.num_cached * model.pool.block_bytes,
                    committed_kv_bytes=model.pool.num_committed * model.pool.block_bytes,
                )
                for model_id, model in self._models.items()
            ],
        )

    def check(self) -> None:
        """Asserts that every committed block is accounted for, by its owners and by the budget."""
        committed_bytes = 0
        for model_id, model in self._models.items():
            model.pool.check()
            model.cache.check()
            committed_bytes += model.pool.num_committed * model.pool.block_bytes
            tables = [s.table for s in self._sequences.values() if s.model_id == model_id]
            tables += self.sessions.tables(model_id)
            held = Counter(block for table in tables for block in table.blocks)
            assert held == model.pool.references(), f"{model_id}: references without an owner"
        assert committed_bytes == self._budget.committed_bytes <= self._budget.limit_bytes, "budget is wrong"

    def close(self) -> None:
        """Unloads everything. The backend stays the caller's."""
        for model_id in list(self._models):
            self.unload_model(model_id)

    def _reserve(self, model_id: str, info: ModelInfo) -> Arena:
        if model_id in self._models:
            raise ModelLoadError(f"model {model_id} is already loaded")
        limit_bytes = self._budget.limit_bytes
        num_blocks = min(limit_bytes // info.block_bytes, _MAX_BLOCKS)
        if num_blocks == 0:
            raise ModelLoadError(
                f"one block of KV memory takes {info.block_bytes} bytes, the limit is {limit_bytes}"
            )
        try:
            return Arena(num_blocks, info.block_bytes)
        except NativeError as error:
            raise ModelLoadError(str(error)) from error

    def _new_sequence(self, request: Request) -> Sequence:
        model = self._models.get(request.model_id)
        if model is None:
            raise InvalidRequest(f"model {request.model_id} is not loaded")
        info = model.device_model.info
        check_request(request, info.vocab_size)
        return Sequence(
            request,
            order=(self._clock() - PRIORITY_S * request.priority, next(self._arrivals)),
            context_length=context_limit(request, info, self._budget.limit_bytes),
            can_shift=info.can_shift,
            table=SequenceTable(model.pool),
            sampler=new_sampler(request.sampling, request.prompt),
        )

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> StepOutput:
        self._scheduler.remove(sequence)
        del self._sequences[sequence.id]
        name = sequence.request.session
        if name is not None and reason not in ("error", "busy"):
            tokens = sequence.tokens[: sequence.num_computed]
            self.sessions.keep(sequence.model_id, name, tokens, sequence.request.cache_salt)
        return sequence.finish(reason, error)

    def _execute(self, step: Step) -> list[StepOutput]:
        for sequence, _ in step.slices:
            sequence.start_clock()
        try:
            result = self._run(self._models[step.model_id], step.slices)
        except (NativeError, MemoryError) as error:
            # The device refused this batch: its requests fail, all others go on.
            text = f"the model failed to run: {str(error) or 'out of memory'}"
            return [self._finish(sequence, "error", text) for sequence, _ in step.slices]
        complete = [s.sequence for s in step.slices if s.completes]
        policy = self._scheduler.lane(step.model_id).policy
        for sequence, num_tokens in step.slices:
            sequence.num_computed += num_tokens
            policy.computed(sequence)
        return [] if result is None else self._commit(complete, result)

    def _run(self, model: _Resident, slices: list[Slice]) -> SampleResult | None:
        """None if no slice completes its sequence."""
        logits = model.device_model.run(build_batch(slices), model.arena)
        samplers = [s.sequence.sampler for s in slices if s.completes]
        return sample_batch(self.backend.pool, logits, samplers) if samplers else None

    def _commit(self, sequences: list[Sequence], result: SampleResult) -> list[StepOutput]:
        outputs = []
        logprobs = _logprobs(sequences, result)
        for row, (sequence, token) in enumerate(zip(sequences, result.tokens.tolist(), strict=True)):
            reason = sequence.append(token)
            output = StepOutput(request_id=sequence.id) if reason is None else self._finish(sequence, reason)
            if reason != "stop":
                output.tokens = [token]
                if sequence.with_logprobs:
                    output.logprobs = [logprobs[row]]
            outputs.append(output)
        return outputs


def _kv_identity(model_id: str, info: ModelInfo) -> KvIdentity:
    return KvIdentity(
        model_id=model_id, kv_type=info.kv_type, num_layers=info.num_layers, block_bytes=info.block_bytes
    )


def _logprobs(sequences: list[Sequence], result: SampleResult) -> list[TokenLogprob]:
    """One per row; none at all if nobody asked for them."""
    if not any(sequence.with_logprobs for sequence in sequences):
        return []
    rows = zip(result.tokens.tolist(), result.logprobs.tolist(), result.top_tokens, strict=True)
    return [TokenLogprob(token, logprob, top) for token, logprob, top in rows]
