"""Requests, from their arrival to their last output."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping

from puna._native import GrammarError, NativeError, ReplyGrammar
from puna.backends.base import ModelLoadError
from puna.engine.admission import new_sequence
from puna.engine.caching.namespaces import Namespaces
from puna.engine.faults import unforeseen
from puna.engine.grammars.compiling import Compiled, GrammarCompiler
from puna.engine.grammars.limits import REPLY_S, TOKEN_S
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.memory.residents import Residents
from puna.engine.model import Model
from puna.engine.observation.recorder import Recorder
from puna.engine.request import FinishReason, Request, StepOutput, TokenLogprob
from puna.engine.scheduling.scheduler import Scheduler
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.drawn import Advance
from puna.engine.sequences.sequence import Order, Sequence
from puna.engine.settings import EngineSettings
from puna.engine.sharing import MemorySharing
from puna.engine.steps.execution import Outcome
from puna.engine.validation import InvalidRequest

log = logging.getLogger(__name__)

PRIORITY_S = 60.0
"""By how much earlier than it did a request counts as having come, for each step of its priority. So higher
ones go first, and yet the lowest does not wait for ever."""


class Requests:
    """Makes sequences of requests, and ends them. An error of one of them leaves the others alone."""

    def __init__(
        self,
        settings: EngineSettings,
        clock: Callable[[], float],
        models: Mapping[str, Model],
        residents: Residents,
        scheduler: Scheduler,
        sharing: MemorySharing,
        recorder: Recorder,
        grammars: GrammarCompiler,
    ) -> None:
        """clock: seconds. models: by id, those asleep included."""
        self._settings = settings
        self._clock = clock
        self._models = models
        self._residents = residents
        self._scheduler = scheduler
        self._sharing = sharing
        self._recorder = recorder
        self._grammars = grammars
        self._namespaces = Namespaces(settings.state_key)
        self._arrivals = itertools.count()
        self.sequences: dict[str, Sequence] = {}
        """By id, those that are not finished."""
        self._outputs: list[StepOutput] = []  # of what happened between two steps

    @property
    def has_outputs(self) -> bool:
        return bool(self._outputs)

    def take_outputs(self) -> list[StepOutput]:
        """Of what has happened since the last call, commit() and finish() apart."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def submit(self, request: Request) -> None:
        """See EngineCore.submit()."""
        assert request.id not in self.sequences, f"request {request.id} is already there"
        self._sharing.hope()
        self._begin(request, (self._clock() - PRIORITY_S * request.priority, next(self._arrivals)))

    def try_parked(self) -> None:
        """Those whose models could not wake for lack of memory."""
        for parked in self._sharing.take_parked():
            self._begin(parked.request, parked.order)

    def cancel(self, request_id: str) -> None:
        """See EngineCore.cancel()."""
        if sequence := self.sequences.get(request_id):
            self._outputs.append(self.finish(sequence, "cancelled"))
        for parked in self._sharing.take_parked(lambda request: request.id == request_id):
            self._outputs.append(StepOutput(request_id=parked.request.id, finish_reason="cancelled"))

    def end_parked(self, model_id: str) -> None:
        """The model is unloaded."""
        for parked in self._sharing.take_parked(lambda request: request.model_id == model_id):
            self._reject(parked.request, "the model was unloaded")

    def end_all(self, model: Model) -> None:
        """It falls asleep: nothing more is computed with it."""
        for sequence in [s for s in self.sequences.values() if s.model_id == model.id]:
            self._outputs.append(self.finish(sequence, "error", "the model was unloaded"))
        for sequence in self.sequences.values():
            if sequence.draft is not None and sequence.draft.drafter is model.drafter:
                sequence.draft.release()
                sequence.draft = None

    def end_adapter(self, model: Model, adapter_id: str) -> None:
        """It is unloaded."""
        for sequence in [s for s in self.sequences.values() if s.model_id == model.id]:
            if sequence.request.adapter == adapter_id:
                self._outputs.append(self.finish(sequence, "error", "the adapter was unloaded"))

    def finish(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> StepOutput:
        """Ends it, and gives its blocks back."""
        model = self._models[sequence.model_id]
        try:
            self._residents.prefixes.end(model.offload, sequence)
        except Exception:  # takes nothing from what it has got
            log.exception("request %s may still be waited for with what is on disk", sequence.id)
        self._scheduler.remove(sequence)
        del self.sequences[sequence.id]
        model.num_requests -= 1
        model.last_used_s = self._clock()
        try:
            if sequence.request.session is not None:
                self._keep_session(model, sequence, sequence.request.session, reason)
        except Exception as fault:  # is its own
            reason, error = "error", unforeseen(sequence.id, fault)
        self._residents.memory.settle()
        return sequence.finish(reason, error)

    def commit(self, outcome: Outcome) -> list[StepOutput]:
        """Gives sequences what they have got from a step."""
        now_ns = self._recorder.now_ns()
        outputs = [self.finish(sequence, "error", text) for sequence, text in outcome.failures]
        for s, advance in outcome.advances:
            try:
                output = self._extend(s, advance, outcome.logprobs, now_ns)
            except GrammarError as error:
                output = self.finish(s.sequence, "error", str(error))
            except Exception as error:  # is its own
                s.sequence.cursor = None  # nobody else is to find what may be wrong
                output = self.finish(s.sequence, "error", unforeseen(s.sequence.id, error))
            if output is not None:
                outputs.append(output)
        for sequence in outcome.embedded:
            outputs.append(self._finish_embedded(sequence))
        return outputs

    def _finish_embedded(self, sequence: Sequence) -> StepOutput:
        assert sequence.pool is not None, "an embedding that nobody wants"
        output = self.finish(sequence, "stop")
        if output.finish_reason == "stop":
            output.embedding = sequence.pool.embedding()
        return output

    def _begin(self, request: Request, order: Order) -> None:
        self._residents.refit()
        try:
            sequence = self._new_sequence(request, order)
        except (InvalidRequest, ModelLoadError, NativeError) as error:
            if isinstance(error, ModelDoesNotFit) and self._sharing.may_come(error.lack):
                self._sharing.park(request, order, error.lack)
            else:
                self._reject(request, str(error))
            return
        except Exception as error:  # is its own
            self._reject(request, unforeseen(request.id, error))
            return
        self.sequences[request.id] = sequence
        model = self._models[request.model_id]
        model.num_requests += 1
        model.last_used_s = self._clock()
        try:
            if not self._residents.prefixes.begin(model.offload, sequence):
                self._scheduler.add(sequence)
            if sequence.end == sequence.num_prompt:
                self._outputs.append(self.finish(sequence, "length"))
            elif sequence.awaits_grammar and model.grammars is not None:
                self._grammars.compile(
                    model.grammars,
                    request.grammar,
                    lambda compiled: self._hold_to(sequence, compiled),
                    lambda: self._is_there(sequence),
                )
        except Exception as error:  # is its own
            self._outputs.append(self.finish(sequence, "error", unforeseen(request.id, error)))

    def _is_there(self, sequence: Sequence) -> bool:
        """For any thread."""
        return self.sequences.get(sequence.id) is sequence

    def _hold_to(self, sequence: Sequence, compiled: Compiled) -> None:
        """Its grammar is there."""
        if not self._is_there(sequence):
            return
        if isinstance(compiled, GrammarError):
            self._outputs.append(self.finish(sequence, "error", str(compiled)))
            return
        sequence.grammar = ReplyGrammar(compiled, reply_s=REPLY_S, token_s=TOKEN_S)
        sequence.awaits_grammar = False

    def _reject(self, request: Request, error: str) -> None:
        self._outputs.append(StepOutput(request_id=request.id, finish_reason="error", error=error))

    def _new_sequence(self, request: Request, order: Order) -> Sequence:
        """Raises InvalidRequest, ModelLoadError, NativeError."""
        model = self._models.get(request.model_id)
        if model is None:
            raise InvalidRequest(f"model {request.model_id} is not loaded")
        if not model.is_awake:
            self._residents.wake(model)
        self._sharing.hope()
        info, num_tokens = model.device.info, len(request.prompt)
        if info.is_encoder and num_tokens <= info.context_length:  # else it is refused below
            self._residents.memory.count_text(model, num_tokens)
        return new_sequence(
            request,
            model,
            self._draft_model(request),
            self._settings,
            order,
            self._namespaces.of(request.cache_salt, request.adapter),
            lambda: self._recorder.submitted(request.id, request.model_id, len(request.prompt)),
            self._residents.memory.ladder,
        )

    def _draft_model(self, request: Request) -> Model | None:
        """None if nothing is to be drafted, or the model is not there: then the request goes without."""
        if request.draft_model_id is None or request.num_draft == 0:
            return None
        draft = self._models.get(request.draft_model_id)
        return draft if draft is not None and draft.is_awake else None

    def _keep_session(self, model: Model, sequence: Sequence, name: str, reason: FinishReason) -> None:
        if reason not in ("error", "busy"):
            tokens = sequence.tokens[: sequence.num_computed]
            to_disk = sequence.request.cache_to_disk
            self._residents.sessions.keep(model.offload, name, tokens, sequence.namespace, to_disk=to_disk)

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
        if sequence.grammar is not None:
            if reason is None:
                sequence.grammar.accept(tokens)
            elif reason == "stop" and num_drawn == len(tokens) and not sequence.text.stop_string:
                reason = "length"  # it only repeats itself, and what the grammar wants is not complete
        if reason is None:
            return StepOutput(sequence.id, text, shown, of_shown) if text or shown else None
        output = self.finish(sequence, reason)
        output.text, output.tokens, output.logprobs = text, shown, of_shown
        return output
