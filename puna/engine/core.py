"""The engine: resident models, requests, and the step that moves them all on."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from puna._native import NativeError
from puna.backends.base import Backend, DeviceModel, ModelInfo, ModelLoadError
from puna.engine.batch import Slice, build_batch
from puna.engine.draft_state import DraftState
from puna.engine.recorder import Recorder
from puna.engine.request import (
    EngineStats,
    FinishReason,
    ModelStats,
    Request,
    StepOutput,
)
from puna.engine.resident import Asleep, Resident
from puna.engine.sampling import Drawn, sample
from puna.engine.scheduler import Scheduler, Step
from puna.engine.sequence import Sequence, new_sampler
from puna.engine.sessions import ModelKv, Sessions
from puna.engine.settings import EngineSettings
from puna.engine.slot_policy import IdleSlots, SlotPolicy
from puna.engine.speculation import add_drafts
from puna.engine.trace import EngineTrace
from puna.engine.validation import InvalidRequest, check_draft_model, check_request, context_limit
from puna.kv import Budget, SequenceTable
from puna.kv.checkpoint import KvIdentity
from puna.kv.memory import default_kv_limit_bytes

PRIORITY_S = 60.0
"""By how much earlier than it did a request counts as having come, for each step of its priority. So higher
ones go first, and yet the lowest does not wait for ever."""


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
        self._idle_slots = IdleSlots()
        pins = self.sessions if settings.cache_policy == "prefix" else self._idle_slots
        self._scheduler = Scheduler(settings, pins)
        self._recorder = Recorder()
        self._models: dict[str, Resident] = {}
        self._asleep: dict[str, Asleep] = {}
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
            if model_id in self._models or model_id in self._asleep:
                raise ModelLoadError(f"model {model_id} is already loaded")
            return self._attach(model_id, device_model, weight)
        except ModelLoadError:
            device_model.close()
            raise

    def sleep_model(self, model_id: str) -> None:
        """As unload_model(), but the model is kept ready for wake_model(), in next to no memory."""
        model = self._models.pop(model_id, None)
        if model is None:
            return
        weight = self._scheduler.lane(model_id).weight
        self._detach(model_id, model)
        model.device_model.sleep()
        self._asleep[model_id] = Asleep(model.device_model, weight)

    def wake_model(self, model_id: str) -> ModelInfo:
        """Undoes sleep_model(). Raises ModelLoadError if that cannot be now; the model then sleeps on."""
        asleep = self._asleep.get(model_id)
        if asleep is None:
            raise ModelLoadError(f"model {model_id} is not asleep")
        info = self._attach(model_id, asleep.device_model, asleep.weight)
        del self._asleep[model_id]
        return info

    def _attach(self, model_id: str, device_model: DeviceModel, weight: float) -> ModelInfo:
        model = Resident.reserve(device_model, self._budget, self.settings, self._clock)
        self._models[model_id] = model
        self._scheduler.add_model(model_id, model.pool, model.policy, model.costs, weight)
        if isinstance(model.policy, SlotPolicy):
            self._idle_slots.add_model(model_id, model.policy)
        identity = _kv_identity(model_id, device_model.info)
        self.sessions.add_model(model_id, ModelKv(identity, model.arena, model.pool, model.cache))
        self._recorder.add_model(model_id)
        device_model.wake()
        return device_model.info

    def unload_model(self, model_id: str) -> None:
        """Gives all of its memory back; its requests finish with an error. Unknown ids are ignored."""
        if asleep := self._asleep.pop(model_id, None):
            asleep.device_model.close()
        elif model := self._models.pop(model_id, None):
            self._detach(model_id, model)
            model.device_model.close()

    def _detach(self, model_id: str, model: Resident) -> None:
        for sequence in [s for s in self._sequences.values() if s.model_id == model_id]:
            self._outputs.append(self._finish(sequence, "error", "the model was unloaded"))
        for sequence in self._sequences.values():
            if sequence.draft is not None and sequence.draft.model is model.draft_model:
                sequence.draft.release()
                sequence.draft = None
        self._scheduler.remove_model(model_id)
        self.sessions.remove_model(model_id)
        self._idle_slots.remove_model(model_id)
        model.pool.close()

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
            guessed_s = self._clock()
            num_decodes = sum(s.num_computed for s in step.slices if s.num_tokens == 1)
            outputs += self._execute(step)
            self._scheduler.account(step, guessed_s - start_s, self._clock() - guessed_s)
            self._recorder.end_step(
                step.model_id, len(step.slices), step.num_tokens - num_decodes, num_decodes
            )
        return outputs

    def trim(self) -> None:
        """Gives memory that holds nothing back to the system: for when nothing is to be done."""
        for model in self._models.values():
            model.pool.trim()

    def drop_cached(self) -> None:
        """Forgets the KV that no sequence or session holds, and gives its memory back."""
        while self._idle_slots.unpin_oldest():
            pass
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
            ]
            + [asleep.stats(model_id) for model_id, asleep in self._asleep.items()],
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
            drafts = [s.draft for s in self._sequences.values() if s.draft is not None]
            tables += [draft.table for draft in drafts if draft.model is model.draft_model]
            tables += self.sessions.tables(model_id) + self._idle_slots.tables(model_id)
            held = Counter(block for table in tables for block in table.blocks)
            assert held == model.pool.references(), f"{model_id}: references without an owner"
        assert committed_bytes == self._budget.committed_bytes <= self._budget.limit_bytes, "budget is wrong"

    def close(self) -> None:
        """Unloads everything. The backend stays the caller's."""
        for model_id in [*self._models, *self._asleep]:
            self.unload_model(model_id)

    def _new_sequence(self, request: Request) -> Sequence:
        model = self._models.get(request.model_id)
        if model is None:
            raise InvalidRequest(f"model {request.model_id} is not loaded")
        info = model.device_model.info
        check_request(request, info.vocab_size)
        if request.session is not None and self.settings.cache_policy != "prefix":
            raise InvalidRequest("sessions are found through the prefix cache, which is not in use")
        draft = self._draft_state(request, info)
        return Sequence(
            request,
            order=(self._clock() - PRIORITY_S * request.priority, next(self._arrivals)),
            context_length=context_limit(request, info, model.pool.num_blocks),
            can_shift=info.can_shift,
            table=SequenceTable(model.pool),
            sampler=new_sampler(request.sampling, request.prompt),
            record=self._recorder.submitted(request.id, request.model_id, len(request.prompt)),
            draft=draft,
        )

    def _draft_state(self, request: Request, info: ModelInfo) -> DraftState | None:
        """None if nothing is to be guessed, or the draft model is not there: then it goes without."""
        if request.draft_model_id is None or request.num_draft == 0:
            return None
        draft = self._models.get(request.draft_model_id)
        if draft is None:
            return None
        check_draft_model(draft.device_model.info, info)
        return draft.draft_model.new_state()

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

    def _run(self, model: Resident, slices: list[Slice]) -> list[Drawn]:
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
