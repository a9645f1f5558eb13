"""The engine: resident models, requests, and the step that moves them all on."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from puna._native import Arena, NativeError
from puna.backends.base import Backend, DeviceModel, ModelInfo, ModelLoadError
from puna.engine.batch import Slice, build_batch
from puna.engine.cache_policy import PrefixPolicy
from puna.engine.recorder import Recorder
from puna.engine.request import (
    EngineStats,
    FinishReason,
    ModelStats,
    Request,
    StepOutput,
)
from puna.engine.sampling import Drawn, sample
from puna.engine.scheduler import Scheduler, Step
from puna.engine.sequence import Sequence, new_sampler
from puna.engine.sessions import ModelKv, Sessions
from puna.engine.settings import EngineSettings
from puna.engine.speculation import add_drafts
from puna.engine.trace import EngineTrace
from puna.engine.validation import InvalidRequest, check_request, context_limit
from puna.kv import BlockPool, Budget, PrefixCache, SequenceTable
from puna.kv.checkpoint import KvIdentity
from puna.kv.extents import plan_extent
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
        self._recorder = Recorder()
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
        self._recorder.add_model(model_id)
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
        self._recorder.begin_step()
        step = self._scheduler.next_step()
        outputs += [self._finish(sequence, "busy") for sequence in self._scheduler.refused()]
        if step is not None:
            start_s = self._clock()
            step = step._replace(slices=add_drafts(step.slices, self._scheduler.lane(step.model_id).costs))
            num_decodes = sum(s.num_computed for s in step.slices if s.num_tokens == 1)
            outputs += self._execute(step)
            self._scheduler.account(step, self._clock() - start_s)
            self._recorder.end_step(
                step.model_id, len(step.slices), step.num_tokens - num_decodes, num_decodes
            )
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
                    num_preemptions=self._recorder.metrics[model_id].num_preemptions,
                    block_bytes=model.pool.block_bytes,
                    used_kv_bytes=model.pool.num_used * model.pool.block_bytes,
                    cached_kv_bytes=model.pool.num_cached * model.pool.block_bytes,
                    committed_kv_bytes=model.pool.committed_bytes,
                )
                for model_id, model in self._models.items()
            ],
            metrics=self._recorder.metrics,
        )

    def trace(self, seconds: float | None = None) -> EngineTrace:
        """What happened in the last `seconds`; None: as far back as is known."""
        return self._recorder.trace(seconds)

    def check(self) -> None:
        """Asserts that every committed block is accounted for, by its owners and by the budget."""
        committed_bytes = 0
        for model_id, model in self._models.items():
            model.pool.check()
            model.cache.check()
            committed_bytes += model.pool.committed_bytes
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
        extent = plan_extent(info.block_bytes, limit_bytes)
        num_blocks = min(limit_bytes // extent.num_bytes * extent.num_blocks, _MAX_BLOCKS)
        if num_blocks == 0:
            raise ModelLoadError(
                f"one block of KV memory takes {info.block_bytes} bytes, the limit is {limit_bytes}"
            )
        try:
            return Arena(num_blocks, info.block_bytes, extent.num_blocks, extent.num_bytes)
        except NativeError as error:
            raise ModelLoadError(str(error)) from error

    def _new_sequence(self, request: Request) -> Sequence:
        model = self._models.get(request.model_id)
        if model is None:
            raise InvalidRequest(f"model {request.model_id} is not loaded")
        info = model.device_model.info
        check_request(request, info.vocab_size)
        if request.session is not None and self.settings.cache_policy != "prefix":
            raise InvalidRequest("sessions are found through the prefix cache, which is not in use")
        return Sequence(
            request,
            order=(self._clock() - PRIORITY_S * request.priority, next(self._arrivals)),
            context_length=context_limit(request, info, model.pool.num_blocks),
            can_shift=info.can_shift,
            table=SequenceTable(model.pool),
            sampler=new_sampler(request.sampling, request.prompt),
            record=self._recorder.submitted(request.id, request.model_id, len(request.prompt)),
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
        now_ns = self._recorder.mark()
        for s in step.slices:
            s.sequence.record.started(now_ns)
        try:
            drawn = self._run(self._models[step.model_id], step.slices)
        except (NativeError, MemoryError) as error:
            # The device refused this batch: its requests fail, all others go on.
            text = f"the model failed to run: {str(error) or 'out of memory'}"
            return [self._finish(s.sequence, "error", text) for s in step.slices]
        now_ns = self._recorder.mark()
        complete = [s for s in step.slices if s.completes]
        policy = self._scheduler.lane(step.model_id).policy
        for s in step.slices:
            s.sequence.num_computed += s.num_tokens
            policy.computed(s.sequence)
        return [self._commit(s, tokens, now_ns) for s, tokens in zip(complete, drawn, strict=True)]

    def _run(self, model: _Resident, slices: list[Slice]) -> list[Drawn]:
        batch = build_batch(slices)
        self._recorder.mark()
        logits = model.device_model.run(batch, model.arena)
        self._recorder.mark()
        return sample(self.backend.pool, logits, slices)

    def _commit(self, s: Slice, drawn: Drawn, now_ns: int) -> StepOutput:
        sequence = s.sequence
        sequence.record.guessed(len(s.drafts), len(drawn.tokens) - 1)
        sequence.record.drew(len(drawn.tokens), now_ns, sequence.num_cached)
        reason = sequence.extend(drawn.tokens, num_drafted=len(s.drafts))
        output = StepOutput(request_id=sequence.id) if reason is None else self._finish(sequence, reason)
        num_kept = len(drawn.tokens) - (reason == "stop")
        output.tokens = drawn.tokens[:num_kept]
        if drawn.logprobs is not None and num_kept:
            output.logprobs = drawn.logprobs[:num_kept]
        return output


def _kv_identity(model_id: str, info: ModelInfo) -> KvIdentity:
    return KvIdentity(
        model_id=model_id, kv_type=info.kv_type, num_layers=info.num_layers, block_bytes=info.block_bytes
    )
