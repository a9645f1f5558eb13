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
from puna.engine.faults import unforeseen
from puna.engine.inspection import check_books, engine_stats
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.memory.residents import Residents
from puna.engine.model import Model
from puna.engine.observation.recorder import Recorder
from puna.engine.observation.stats import EngineStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.request import FinishReason, Request, StepOutput, TokenLogprob
from puna.engine.scheduling.scheduler import Scheduler, Step
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.drawn import Advance
from puna.engine.sequences.sequence import Order, Sequence
from puna.engine.settings import EngineSettings
from puna.engine.sharing import MemorySharing
from puna.engine.speculation.drafting import add_drafts
from puna.engine.steps.execution import Outcome, StepRunner
from puna.engine.validation import InvalidRequest
from puna.kv.limits import Limits

log = logging.getLogger(__name__)

PRIORITY_S = 60.0
"""By how much earlier than it did a request counts as having come, for each step of its priority. So higher
ones go first, and yet the lowest does not wait for ever."""


class EngineCore:
    """Runs the requests of all resident models on one device.

    For one thread, which calls step() and everything else, except for interrupt(). backend.load() may
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
        self._namespaces = Namespaces(settings.state_key)
        self._models: dict[str, Model] = {}
        self._residents = Residents(settings, clock, self._models, self._end_requests)
        self.prefixes, self.sessions = self._residents.prefixes, self._residents.sessions
        self.memory = self._residents.memory
        self._scheduler = Scheduler(settings, self._models, self.memory.ladder)
        self.sharing = MemorySharing(self.memory, self._scheduler)
        self._recorder = Recorder(clock)
        self._runner = StepRunner(self._recorder)
        self._sequences: dict[str, Sequence] = {}
        self._arrivals = itertools.count()
        self._outputs: list[StepOutput] = []  # of what happened between two steps
        self.under_way: Step | None = None
        """The step that is being computed: for any thread to see."""
        self.is_stalled = False
        """The last step() could do nothing: requests wait for memory that others hold, or for a disk."""

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do or to say."""
        return bool(self._outputs) or self._scheduler.has_work or self.prefixes.has_restored

    def load_model(self, model_id: str, source: ModelSource) -> ModelInfo:
        """Raises ModelLoadError."""
        return self.attach_model(model_id, self.backend.load(source))

    def attach_model(
        self,
        model_id: str,
        device_model: DeviceModel,
        share: float = 1.0,
        guaranteed_bytes: int = 0,
        name: str | None = None,
    ) -> ModelInfo:
        """Makes a loaded model resident; from here on it is the engine's to close.

        share: of the device's time while other models have work, too, relative to theirs.
        guaranteed_bytes: KV memory that no other model takes. name: for error texts.
        Raises ModelLoadError; ModelDoesNotFit where that, or its weights, are too much beside what others
        cannot do without.
        """
        try:
            if model_id in self._models:
                raise ModelLoadError(f"model {model_id} is already loaded")
            model = Model(
                model_id,
                device_model,
                self._clock,
                name=name or model_id,
                share=share,
                guaranteed_bytes=guaranteed_bytes,
            )
            self._wake_if_there_is_room(model)
        except ModelLoadError:
            device_model.close()
            raise
        self._models[model_id] = model
        self._recorder.add_model(model_id)
        return device_model.info

    def hold_model(self, model_id: str, *, is_held: bool) -> None:
        """Whether somebody is about to send requests to a model: it then does not sleep to make room for
        others. Unknown ids are ignored.
        """
        if model := self._models.get(model_id):
            model.is_held = is_held
            model.last_used_s = self._clock()

    def sleep_model(self, model_id: str) -> None:
        """As unload_model(), but the model is kept, in next to no memory: its next request wakes it."""
        if (model := self._models.get(model_id)) and model.is_awake:
            self._residents.sleep(model)

    def wake_model(self, model_id: str) -> ModelInfo:
        """Undoes sleep_model(), ahead of a request. Raises ModelLoadError if that cannot be now; the model
        then sleeps on.
        """
        model = self._models.get(model_id)
        if model is None:
            raise ModelLoadError(f"model {model_id} is not loaded")
        if not model.is_awake:
            self._wake_if_there_is_room(model)
        return model.device.info

    def set_token_table(self, model_id: str, table: TokenTable) -> None:
        """Requests from now on get text, and may have stop strings."""
        if model := self._models.get(model_id):
            model.token_table = table

    def unload_model(self, model_id: str) -> None:
        """Gives all of its memory back; its requests finish with an error. Unknown ids are ignored."""
        if model := self._models.get(model_id):
            if model.is_awake:
                self._residents.leave(model)
            for parked in self.sharing.take_parked(lambda request: request.model_id == model_id):
                self._reject(parked.request, "the model was unloaded")
            del self._models[model_id]
            model.device.close()

    def _wake_if_there_is_room(self, model: Model) -> None:
        """Leaves it asleep where other engines could make room for it, which its first request asks for.

        Raises ModelLoadError.
        """
        try:
            self._residents.wake(model)
        except ModelDoesNotFit as error:
            if not self.sharing.may_come(error.lack):
                raise

    def set_limits(
        self,
        kv_limit_bytes: int | None = None,
        memory_limit_bytes: int | None = None,
        *,
        whole: Limits | None = None,
        reachable: Limits | None = None,
    ) -> int:
        """On the KV memory of all models, and on that and their weights; None: as before.

        whole: what all engines that share the memory may have together; None: there are no others. reachable:
        by how much others could let the limits be raised for those that wait now; None: by all they have.
        Usable at once if higher. If lower, what is spare or cached goes at once. Returns how many bytes are
        still above the limits: what running requests hold goes as they finish, and nobody gets more before.
        """
        self.memory.set_limits(kv_limit_bytes, memory_limit_bytes)
        self.sharing.set_whole(whole, reachable)
        self._residents.refit()
        self.memory.settle()
        for parked in self.sharing.take_parked():
            self._begin(parked.request, parked.order)
        return self.memory.budget.excess_bytes

    def lease(self, num_bytes: int, *, is_held: bool = False) -> bool:
        """Takes memory for somebody outside: what is free, or cached, but nothing guaranteed to models.

        is_held: they have it already, from an earlier engine. False if there is not that much.
        """
        if is_held:
            self.memory.budget.count_lease(num_bytes)
            return True
        return self.memory.lease(num_bytes)

    def end_lease(self, num_bytes: int) -> None:
        """So much of what was leased is free again."""
        self.memory.budget.end_lease(num_bytes)

    def submit(self, request: Request) -> None:
        """Queues a request; a model that sleeps wakes. One that cannot be run finishes with an error at the
        next step.
        """
        assert request.id not in self._sequences, f"request {request.id} is already there"
        self.sharing.hope()
        self._begin(request, (self._clock() - PRIORITY_S * request.priority, next(self._arrivals)))

    def _begin(self, request: Request, order: Order) -> None:
        self._residents.refit()
        try:
            sequence = self._new_sequence(request, order)
        except (InvalidRequest, ModelLoadError, NativeError) as error:
            if isinstance(error, ModelDoesNotFit) and self.sharing.may_come(error.lack):
                self.sharing.park(request, order, error.lack)
            else:
                self._reject(request, str(error))
            return
        except Exception as error:  # is its own
            self._reject(request, unforeseen(request.id, error))
            return
        self._sequences[request.id] = sequence
        model = self._models[request.model_id]
        model.num_requests += 1
        model.last_used_s = self._clock()
        try:
            if not self.prefixes.begin(model.offload, sequence):
                self._scheduler.add(sequence)
        except Exception as error:  # is its own
            self._outputs.append(self._finish(sequence, "error", unforeseen(request.id, error)))
            return
        if sequence.end == sequence.num_prompt:
            self._outputs.append(self._finish(sequence, "length"))

    def _reject(self, request: Request, error: str) -> None:
        self._outputs.append(StepOutput(request_id=request.id, finish_reason="error", error=error))

    def _new_sequence(self, request: Request, order: Order) -> Sequence:
        """Raises InvalidRequest, ModelLoadError, NativeError."""
        model = self._models.get(request.model_id)
        if model is None:
            raise InvalidRequest(f"model {request.model_id} is not loaded")
        if not model.is_awake:
            self._residents.wake(model)
        self.sharing.hope()
        return new_sequence(
            request,
            model,
            self._draft_model(request),
            self.settings,
            order,
            self._namespaces.of(request.cache_salt),
            lambda: self._recorder.submitted(request.id, request.model_id, len(request.prompt)),
            self.memory.ladder.more_bytes,
        )

    def _draft_model(self, request: Request) -> Model | None:
        """None if nothing is to be drafted, or the model is not there: then the request goes without."""
        if request.draft_model_id is None or request.num_draft == 0:
            return None
        draft = self._models.get(request.draft_model_id)
        return draft if draft is not None and draft.is_awake else None

    def cancel(self, request_id: str) -> None:
        """Gives the request's blocks back at once. Requests that are already finished are ignored."""
        if sequence := self._sequences.get(request_id):
            self._outputs.append(self._finish(sequence, "cancelled"))
        for parked in self.sharing.take_parked(lambda request: request.id == request_id):
            self._outputs.append(StepOutput(request_id=parked.request.id, finish_reason="cancelled"))

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
        self._residents.refit()
        self.memory.settle()
        outputs, self._outputs = self._outputs, []
        self._recorder.begin_step()
        for sequence in self.prefixes.take_restored():
            if self._sequences.get(sequence.id) is sequence:
                self._scheduler.add(sequence)
        step = self._scheduler.next_step()
        self.sharing.hope()
        outputs += [self._finish(sequence, "busy") for sequence in self._scheduler.refused()]
        outputs += [self._finish(s, "error", reason) for s, reason in self._scheduler.take_infeasible()]
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
        num_tokens = step.count_tokens()
        outcome = self._runner.run(step.model, step.slices)
        outputs = self._commit(outcome)
        if outcome.was_interrupted:
            self._scheduler.undo(step)
        else:
            self._scheduler.account(step.model, num_tokens, drafted_s - start_s, self._clock() - drafted_s)
            self._recorder.end_step(step.model.id, len(step.slices), *num_tokens)
        return outputs

    def _draft(self, step: Step) -> None:
        try:
            add_drafts(step.slices, step.model.costs)
        except Exception:  # none of them depends on drafts
            log.exception("drafting failed: these requests go on without it")
            for s in step.slices:
                s.drafts = ()
                s.sequence.stop_drafting()

    def trim(self) -> bool:
        """Gives memory that holds nothing back to the system: for when nothing is to be done. True: there is
        more of it than one call can deal with.
        """
        return self.memory.budget.trim()

    def trim_kv(self) -> int:
        """Forgets the KV that no sequence or session holds, and gives its memory back: so many bytes."""
        before = self.memory.budget.committed_bytes
        for model in self._residents.awake():
            model.policy.empty_idle()
            while model.kv.drop_cached():
                pass
        while self.trim():
            pass
        return before - self.memory.budget.committed_bytes

    def stats(self) -> EngineStats:
        return engine_stats(self._models.values(), self._recorder, self.memory.budget, self.prefixes)

    def trace(self, seconds: float | None = None) -> EngineTrace:
        """The events of the last `seconds`; None: all that are still known."""
        return self._recorder.trace(seconds)

    def check(self) -> None:
        """Asserts that every committed block is accounted for, by its owners and by the budget."""
        check_books(self._residents.awake(), self._sequences.values(), self.memory.budget)

    def close(self) -> None:
        """Unloads everything. The backend stays the caller's."""
        for model_id in list(self._models):
            self.unload_model(model_id)

    def _end_requests(self, model: Model) -> None:
        """It falls asleep: nothing more is computed with it."""
        for sequence in [s for s in self._sequences.values() if s.model_id == model.id]:
            self._outputs.append(self._finish(sequence, "error", "the model was unloaded"))
        for sequence in self._sequences.values():
            if sequence.draft is not None and sequence.draft.model is model.drafter:
                sequence.draft.release()
                sequence.draft = None

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> StepOutput:
        model = self._models[sequence.model_id]
        try:
            self.prefixes.end(model.offload, sequence)
        except Exception:  # takes nothing from what it has got
            log.exception("request %s may still be waited for with what is on disk", sequence.id)
        self._scheduler.remove(sequence)
        del self._sequences[sequence.id]
        model.num_requests -= 1
        model.last_used_s = self._clock()
        try:
            self._keep_session(model, sequence, reason)
        except Exception as fault:  # is its own
            reason, error = "error", unforeseen(sequence.id, fault)
        self.memory.settle()
        return sequence.finish(reason, error)

    def _keep_session(self, model: Model, sequence: Sequence, reason: FinishReason) -> None:
        name = sequence.request.session
        if name is not None and reason not in ("error", "busy"):
            tokens = sequence.tokens[: sequence.num_computed]
            to_disk = sequence.request.cache_to_disk
            self.sessions.keep(model.offload, name, tokens, sequence.namespace, to_disk=to_disk)

    def _commit(self, outcome: Outcome) -> list[StepOutput]:
        now_ns = self._recorder.now_ns()
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
