"""The engine: resident models, requests, and the step that moves them all on."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping

from puna._native import NativeError, TokenTable
from puna.backends.base import Backend, DeviceModel, ModelInfo, ModelLoadError, ModelSource
from puna.engine.admission import new_sequence
from puna.engine.caching.namespaces import Namespaces
from puna.engine.caching.slot_policy import IdleSlots, SlotPolicy
from puna.engine.faults import unforeseen
from puna.engine.memory import EngineMemory
from puna.engine.observation.inspection import check_books, engine_stats
from puna.engine.observation.recorder import Recorder
from puna.engine.observation.trace import EngineTrace
from puna.engine.offload.sessions import Sessions
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.engine.refit import Refitting
from puna.engine.request import EngineStats, FinishReason, Request, StepOutput, TokenLogprob
from puna.engine.resident import Asleep, Resident
from puna.engine.scheduling.pins import AllPins
from puna.engine.scheduling.scheduler import Scheduler, Step
from puna.engine.scheduling.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.engine.speculation.drafting import add_drafts
from puna.engine.steps.batch import Slice
from puna.engine.steps.drawn import Advance
from puna.engine.steps.execution import Outcome, StepRunner
from puna.engine.validation import InvalidRequest

log = logging.getLogger(__name__)

PRIORITY_S = 60.0
"""By how much earlier than it did a request counts as having come, for each step of its priority. So higher
ones go first, and yet the lowest does not wait for ever."""


class EngineCore:
    """Runs the requests of all resident models on one device.

    For one thread: whoever calls step() also calls everything else, but for interrupt(). backend.load() may
    run elsewhere, its result then given to attach_model().
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
        self.sessions = Sessions(settings, clock)
        self._namespaces = Namespaces(settings.state_key)
        self._idle_slots = IdleSlots()
        self.prefixes = WarmPrefixes(settings, clock, self._idle_slots)
        pins = AllPins(self.prefixes, self.sessions, self._idle_slots)
        self._scheduler = Scheduler(settings, pins)
        self.memory = EngineMemory(settings, self._scheduler, pins)
        self._refitting = Refitting(
            settings,
            clock,
            self.memory.budget,
            self._scheduler,
            self.sessions,
            self._idle_slots,
            self.prefixes,
        )
        self._recorder = Recorder()
        self._runner = StepRunner(self._recorder)
        self._models: dict[str, Resident] = {}
        self._asleep: dict[str, Asleep] = {}
        self._token_tables: dict[str, TokenTable] = {}  # of models awake and asleep
        self._sequences: dict[str, Sequence] = {}
        self._arrivals = itertools.count()
        self._outputs: list[StepOutput] = []  # of what happened between two steps
        self.under_way: Step | None = None
        """What step() computes just now: for any thread to see."""
        self.is_stalled = False
        """The last step() could do nothing: what requests need is still in use by threads that read files."""

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do or to say."""
        return bool(self._outputs) or self._scheduler.has_work or self.prefixes.has_restored

    def load_model(self, model_id: str, source: ModelSource) -> ModelInfo:
        """Raises ModelLoadError."""
        return self.attach_model(model_id, self.backend.load(source))

    def attach_model(
        self, model_id: str, device_model: DeviceModel, weight: float = 1.0, minimum_kv_bytes: int = 0
    ) -> ModelInfo:
        """Makes a loaded model resident; from here on it is the engine's to close.

        weight: its share of the device's time while other models have work, too, relative to theirs.
        minimum_kv_bytes: KV memory that it is sure of. Raises ModelLoadError; ModelDoesNotFit where that, or
        its weights, are too much beside what other models cannot do without.
        """
        try:
            if model_id in self._models or model_id in self._asleep:
                raise ModelLoadError(f"model {model_id} is already loaded")
            return self._attach(model_id, device_model, weight, minimum_kv_bytes)
        except ModelLoadError:
            device_model.close()
            raise

    def sleep_model(self, model_id: str) -> None:
        """As unload_model(), but the model is kept ready for wake_model(), in next to no memory."""
        model = self._models.pop(model_id, None)
        if model is None:
            return
        asleep = Asleep(model.device_model, self._scheduler.lane(model_id).weight, model.minimum_kv_bytes)
        self._detach(model_id, model)
        model.device_model.sleep()
        self._asleep[model_id] = asleep

    def wake_model(self, model_id: str) -> ModelInfo:
        """Undoes sleep_model(). Raises ModelLoadError if that cannot be now; the model then sleeps on."""
        asleep = self._asleep.get(model_id)
        if asleep is None:
            raise ModelLoadError(f"model {model_id} is not asleep")
        info = self._attach(model_id, *asleep)
        del self._asleep[model_id]
        return info

    def _attach(
        self, model_id: str, device_model: DeviceModel, weight: float, minimum_kv_bytes: int
    ) -> ModelInfo:
        model = Resident.reserve(
            device_model, self.memory.budget, self.settings, self._clock, minimum_kv_bytes
        )
        try:
            self.memory.enter(model)
        except ModelLoadError:
            model.pool.close()
            raise
        self._models[model_id] = model
        self._scheduler.add_model(model_id, model.pool, model.policy, model.costs, weight)
        if isinstance(model.policy, SlotPolicy):
            self._idle_slots.add_model(model_id, model.policy)
        kv = model.kv(model_id)
        self.sessions.add_model(model_id, kv, device_model.info.kernels)
        self.prefixes.add_model(model_id, kv, device_model.info.kernels, model.costs)
        self._recorder.add_model(model_id)
        return device_model.info

    def set_token_table(self, model_id: str, table: TokenTable) -> None:
        """Requests from now on get text, and may have stop strings. Kept until the model is unloaded."""
        if model_id in self._models or model_id in self._asleep:
            self._token_tables[model_id] = table

    def unload_model(self, model_id: str) -> None:
        """Gives all of its memory back; its requests finish with an error. Unknown ids are ignored."""
        self._token_tables.pop(model_id, None)
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
        self.memory.leave(model)
        self.prefixes.remove_model(model_id)

    def set_limits(self, kv_limit_bytes: int | None = None, memory_limit_bytes: int | None = None) -> int:
        """On the KV memory of all models, and on that and their weights; None: as before.

        Usable at once if higher. If lower, what is spare or cached goes at once. Returns how many bytes are
        still above the limits: what running requests hold goes as they finish, and nobody gets more before.
        """
        self.memory.set_limits(kv_limit_bytes, memory_limit_bytes)
        self._refit()
        self.memory.settle()
        return self.memory.budget.excess_bytes

    def lease(self, num_bytes: int, *, is_held: bool = False) -> bool:
        """Takes memory for somebody outside: what is free, or cached, but nothing that models are sure of.

        is_held: they have it already, from an earlier engine. False if there is not that much.
        """
        return self.memory.budget.lease(num_bytes, is_held=is_held)

    def end_lease(self, num_bytes: int) -> None:
        """So much of what was leased is free again."""
        self.memory.budget.end_lease(num_bytes)

    def submit(self, request: Request) -> None:
        """Queues a request. One that cannot be run finishes with an error at the next step."""
        assert request.id not in self._sequences, f"request {request.id} is already there"
        self._refit()
        try:
            order = self._clock() - PRIORITY_S * request.priority, next(self._arrivals)
            namespace = self._namespaces.of(request.cache_salt)
            table = self._token_tables.get(request.model_id)
            sequence = new_sequence(
                request, self._models, self.settings, order, namespace, self._recorder, table
            )
        except (InvalidRequest, NativeError) as error:
            self._outputs.append(StepOutput(request_id=request.id, finish_reason="error", error=str(error)))
            return
        except Exception as error:  # is its own
            text = unforeseen(request.id, error)
            self._outputs.append(StepOutput(request_id=request.id, finish_reason="error", error=text))
            return
        self._sequences[request.id] = sequence
        try:
            if not self.prefixes.begin(sequence):
                self._scheduler.add(sequence)
        except Exception as error:  # is its own
            self._outputs.append(self._finish(sequence, "error", unforeseen(request.id, error)))
            return
        if sequence.end == sequence.num_prompt:
            self._outputs.append(self._finish(sequence, "length"))

    def cancel(self, request_id: str) -> None:
        """Gives the request's blocks back at once. Requests that are already finished are ignored."""
        if sequence := self._sequences.get(request_id):
            self._outputs.append(self._finish(sequence, "cancelled"))

    def interrupt(self, request_id: str) -> None:
        """Ends the step that is under way if nobody else is in it: for any thread, once it has asked the
        engine's to cancel() the request.
        """
        self._runner.interrupts.interrupt(request_id)

    def pause(self, request_id: str, *, paused: bool) -> None:
        """A paused request is not computed, and keeps its place. Requests that are finished are ignored."""
        if sequence := self._sequences.get(request_id):
            sequence.is_paused = paused

    def step(self) -> list[StepOutput]:
        """Computes the next tokens of one model's requests; what every request concerned got from it."""
        self._refit()
        self.memory.settle()
        outputs, self._outputs = self._outputs, []
        self._recorder.begin_step()
        for sequence in self.prefixes.take_restored():
            if self._sequences.get(sequence.id) is sequence:
                self._scheduler.add(sequence)
        step = self._scheduler.next_step()
        outputs += [self._finish(sequence, "busy") for sequence in self._scheduler.refused()]
        outputs += [self._finish(s, "error", reason) for s, reason in self._scheduler.take_hopeless()]
        self.is_stalled = step is None and not outputs
        if step is not None:
            self.under_way = step
            outputs += self._compute(step)
            self.under_way = None
        return outputs

    def _compute(self, step: Step) -> list[StepOutput]:
        start_s = self._clock()
        self._draft(step)
        drafted_s = self._clock()
        num_decodes = sum(s.num_computed for s in step.slices if s.num_tokens == 1)
        table = self._token_tables.get(step.model_id)
        outcome = self._runner.run(self._models[step.model_id], step.slices, table)
        outputs = self._commit(outcome)
        if not outcome.was_interrupted:
            self._scheduler.account(step, drafted_s - start_s, self._clock() - drafted_s)
            num_prefills = step.num_tokens - num_decodes
            self._recorder.end_step(step.model_id, len(step.slices), num_prefills, num_decodes)
        return outputs

    def _draft(self, step: Step) -> None:
        try:
            add_drafts(step.slices, self._scheduler.lane(step.model_id).costs)
        except Exception:  # none of them depends on drafts
            log.exception("drafting failed: these requests go on without it")
            for s in step.slices:
                s.drafts = ()
                s.sequence.stop_drafting()

    def trim(self) -> None:
        """Gives memory that holds nothing back to the system: for when nothing is to be done."""
        self.memory.budget.trim()

    def trim_kv(self) -> int:
        """Forgets the KV that no sequence or session holds, and gives its memory back: so many bytes."""
        before = self.memory.budget.committed_bytes
        while self._idle_slots.unpin_oldest():
            pass
        for model in self._models.values():
            model.pool.drop_cached()
        self.trim()
        return before - self.memory.budget.committed_bytes

    def stats(self) -> EngineStats:
        return engine_stats(
            self._models, self._asleep, self._scheduler, self._recorder, self.memory.budget, self.prefixes
        )

    def trace(self, seconds: float | None = None) -> EngineTrace:
        """What happened in the last `seconds`; None: as far back as is known."""
        return self._recorder.trace(seconds)

    def check(self) -> None:
        """Asserts that every committed block is accounted for, by its owners and by the budget."""
        kept = {name: self.sessions.tables(name) + self._idle_slots.tables(name) for name in self._models}
        lent = {name: self.prefixes.held(name) for name in self._models}
        check_books(self._models, self._sequences.values(), kept, lent, self.memory.budget)

    def close(self) -> None:
        """Unloads everything. The backend stays the caller's."""
        for model_id in [*self._models, *self._asleep]:
            self.unload_model(model_id)

    def _refit(self) -> None:
        """Has models that use no KV memory suit the limits."""
        self._refitting.refit_all(self._models, self._sequences.values())

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> StepOutput:
        try:
            self.prefixes.end(sequence)
        except Exception:  # takes nothing from what it has got
            log.exception("request %s may still be waited for with what is on disk", sequence.id)
        self._scheduler.remove(sequence)
        del self._sequences[sequence.id]
        try:
            self._keep_session(sequence, reason)
        except Exception as fault:  # is its own
            reason, error = "error", unforeseen(sequence.id, fault)
        self.memory.settle()
        return sequence.finish(reason, error)

    def _keep_session(self, sequence: Sequence, reason: FinishReason) -> None:
        name = sequence.request.session
        if name is not None and reason not in ("error", "busy"):
            tokens = sequence.tokens[: sequence.num_computed]
            to_disk = sequence.request.cache_to_disk
            self.sessions.keep(sequence.model_id, name, tokens, sequence.namespace, to_disk=to_disk)

    def _commit(self, outcome: Outcome) -> list[StepOutput]:
        now_ns = time.monotonic_ns()
        outputs = [self._finish(sequence, "error", text) for sequence, text in outcome.failures]
        for s, advance in outcome.advances:
            try:
                output = self._extend(s, advance, outcome.logprobs, now_ns)
            except Exception as error:  # is its own
                s.sequence.cursor = None  # nobody else is to find what may be wrong
                output = self._finish(s.sequence, "error", unforeseen(s.sequence.id, error))
            if output is not None:
                outputs.append(output)
        return outputs

    def _extend(
        self, s: Slice, advance: Advance, logprobs: Mapping[Slice, list[TokenLogprob]], now_ns: int
    ) -> StepOutput | None:
        """None while all text is held back. logprobs: of what was drawn, for those that want them."""
        tokens, num_drawn, reason, text, shown = advance
        sequence, num_drafted = s.sequence, len(s.drafts)
        sequence.record.drew(num_drawn, now_ns, sequence.num_cached)
        if num_drafted:
            sequence.record.drafted(num_drafted, num_drawn - 1)
        sequence.extend(tokens, num_drawn - 1, num_drafted)
        of_shown = None
        if sequence.with_logprobs:
            of_shown = sequence.take_logprobs(logprobs[s][: len(tokens)], len(shown)) or None
        if reason is None:
            return StepOutput(sequence.id, text, shown, of_shown) if text or shown else None
        output = self._finish(sequence, reason)
        output.text, output.tokens, output.logprobs = text, shown, of_shown
        return output
