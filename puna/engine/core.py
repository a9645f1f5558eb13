"""The engine: resident models, requests, and the step that moves them all on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from puna._native import TokenTable
from puna.backends.base import Backend, DeviceModel, ModelInfo, ModelLoadError, ModelSource
from puna.engine.adapters import Adapters
from puna.engine.grammars.compiling import GrammarCompiler, ModelGrammars
from puna.engine.grammars.vocabulary import GrammarTokens
from puna.engine.inspection import check_books, engine_stats
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.memory.residents import Residents
from puna.engine.model import Model
from puna.engine.observation.recorder import Recorder
from puna.engine.observation.stats import EngineStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.request import Request, StepOutput
from puna.engine.requests import Requests
from puna.engine.scheduling.scheduler import Scheduler, Step
from puna.engine.settings import EngineSettings
from puna.engine.sharing import MemorySharing
from puna.engine.speculation.drafting import add_drafts
from puna.engine.steps.execution import StepRunner
from puna.kv.limits import Limits

log = logging.getLogger(__name__)


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
        self._models: dict[str, Model] = {}
        self._residents = Residents(
            settings, clock, self._models, lambda model: self._requests.end_all(model)
        )
        self.prefixes, self.sessions = self._residents.prefixes, self._residents.sessions
        self.memory = self._residents.memory
        self._scheduler = Scheduler(
            settings, self._models, self.memory.ladder, self.prefixes.look_again, self.prefixes.is_reading
        )
        self.sharing = MemorySharing(self.memory, self._scheduler)
        self._recorder = Recorder(clock)
        self._runner = StepRunner(self._recorder)
        self.grammars = GrammarCompiler(clock)
        self._requests = Requests(
            settings,
            clock,
            self._models,
            self._residents,
            self._scheduler,
            self.sharing,
            self._recorder,
            self.grammars,
        )
        self.adapters = Adapters(self._models, self.memory, self._requests.end_adapter)
        self.under_way: Step | None = None
        """The step that is being computed: for any thread to see."""
        self.is_stalled = False
        """The last step() could do nothing: requests wait for memory that others hold, or for a disk."""

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do or to say."""
        return self._requests.has_outputs or self._scheduler.has_work or self.prefixes.has_restored

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

    def set_token_table(self, model_id: str, table: TokenTable, tokens: GrammarTokens | None = None) -> None:
        """Requests from now on get text, and may have stop strings; with `tokens` also grammars."""
        if model := self._models.get(model_id):
            model.token_table = table
            count = partial(self.memory.count_vocabulary, model)
            model.grammars = None if tokens is None else ModelGrammars(tokens, count)

    def unload_model(self, model_id: str) -> None:
        """Gives all of its memory back; its requests finish with an error. Unknown ids are ignored."""
        if model := self._models.get(model_id):
            if model.is_awake:
                self._residents.leave(model)
            self._requests.end_parked(model_id)
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
        self._requests.try_parked()
        return self.memory.budget.excess_bytes

    def lease(self, num_bytes: int, *, weight_bytes: int = 0, is_held: bool = False) -> bool:
        """Takes memory for somebody outside: what is free, or cached, but nothing guaranteed to models.

        weight_bytes: besides, of weights. is_held: they have it already, from an earlier engine. False if
        there is not that much.
        """
        if is_held:
            self.memory.budget.add_weights(weight_bytes)
            self.memory.budget.count_lease(num_bytes)
            return True
        return self.memory.lease(num_bytes, weight_bytes)

    def end_lease(self, num_bytes: int, weight_bytes: int = 0) -> None:
        """So much of what was leased is free again."""
        self.memory.budget.end_lease(num_bytes)
        self.memory.budget.remove_weights(weight_bytes)

    def submit(self, request: Request) -> None:
        """Queues a request; a model that sleeps wakes. One that cannot be run finishes with an error at the
        next step.
        """
        self._requests.submit(request)

    def cancel(self, request_id: str) -> None:
        """Gives the request's blocks back at once. Requests that are already finished are ignored."""
        self._requests.cancel(request_id)

    def interrupt(self, request_id: str) -> None:
        """Ends the step that is under way if nobody else is in it: for any thread, once it has asked the
        engine's to cancel() the request.
        """
        self._runner.interrupts.interrupt(request_id)

    def pause(self, request_id: str, *, paused: bool) -> None:
        """A paused request is not computed, and keeps its place. Requests that are finished are ignored."""
        if sequence := self._requests.sequences.get(request_id):
            sequence.is_paused = paused

    def step(self) -> list[StepOutput]:
        """Computes the next tokens of one model's requests; what every request concerned got from it."""
        self._residents.refit()
        self.memory.settle()
        outputs = self._requests.take_outputs()
        self._recorder.begin_step()
        for sequence in self.prefixes.take_restored():
            if self._requests.sequences.get(sequence.id) is sequence:
                self._scheduler.add(sequence)
        step = self._scheduler.next_step()
        self.sharing.hope()
        for sequence in self._scheduler.refused():
            outputs.append(self._requests.finish(sequence, "busy"))
        for sequence, reason in self._scheduler.take_infeasible():
            outputs.append(self._requests.finish(sequence, "error", reason))
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
        outcome = self._runner.run(step)
        outputs = self._requests.commit(outcome)
        if outcome.was_interrupted:
            self._scheduler.undo(step)
        elif outcome.was_suspended:
            self._scheduler.suspend(step, self._clock() - drafted_s)
            self._recorder.suspend_step(step.model.id)
        else:
            self._scheduler.account(step.model, num_tokens, drafted_s - start_s, self._clock() - drafted_s)
            self._recorder.end_step(step.model.id, len(step.slices), *num_tokens)
        return outputs

    def _draft(self, step: Step) -> None:
        try:
            add_drafts(step.slices, step.model.costs, has_states=step.model.kv.has_states)
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
        check_books(self._residents.awake(), self._requests.sequences.values(), self.memory.budget)

    def close(self) -> None:
        """Unloads everything. The backend stays the caller's."""
        self.grammars.close()
        for model_id in list(self._models):
            self.unload_model(model_id)
