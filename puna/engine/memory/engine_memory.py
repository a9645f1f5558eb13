"""The memory of all models of an engine, and how one gets more of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from puna.backends.base import DeviceOutOfMemory, ModelLoadError
from puna.config.memory import available_bytes, default_kv_limit_bytes
from puna.config.sizes import binary_size
from puna.engine.memory.ladder import Drafts, IdleModels, Ladder, Rung
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.memory.offers import Level, Offer, offers_of
from puna.engine.memory.shortage import describe_shortage
from puna.engine.model import Model
from puna.engine.settings import EngineSettings
from puna.kv import Budget
from puna.kv.budget import Shortage
from puna.kv.limits import NOTHING, Limits
from puna.kv.model_kv import ModelKv

log = logging.getLogger(__name__)


def new_budget(settings: EngineSettings) -> Budget:
    """With the limits that are set, or what the machine has."""
    kv_limit, memory_limit = settings.kv_limit_bytes, settings.memory_limit_bytes
    return Budget(
        default_kv_limit_bytes() if kv_limit is None else kv_limit,
        available_bytes() if memory_limit is None else memory_limit,
    )


class EngineMemory:
    """The budget, and what gives way when it gets smaller."""

    def __init__(
        self,
        settings: EngineSettings,
        models: Mapping[str, Model],
        pins: list[tuple[Level, Rung]],
        sleep: Callable[[Model], None],
        clock: Callable[[], float],
    ) -> None:
        """pins: KV that is kept although no sequence needs it now: transfers, sessions, slots.

        sleep: of an idle model. clock: seconds.
        """
        self.budget = new_budget(settings)
        self._models = models
        self._clock = clock
        self._is_elastic = settings.elastic
        self._settings = settings
        self._idle = IdleModels(models, self.budget, sleep)
        self.ladder = Ladder(
            [(Level.DRAFTS, Drafts(models)), *pins], self._idle if settings.elastic else None, self.budget
        )
        self._has_failed = False  # to settle, the last time

    def enter(self, model: Model, kv: ModelKv) -> None:
        """Counts what a model takes and what is guaranteed to it; others make room, down to idle models.

        Raises ModelLoadError, and counts nothing.
        """
        if not self._is_elastic:
            model.guaranteed_bytes = kv.reserved_bytes
        model.text_bytes = self._text_bytes(model, 0)
        model.fixed_bytes = self._make_room(model, kv)
        self.budget.add_weights(model.fixed_bytes)
        self.budget.set_guarantee(kv, model.guaranteed_bytes)
        if not self._is_elastic:
            try:
                kv.make_static()
            except DeviceOutOfMemory as error:
                self.leave(model, kv)
                raise ModelLoadError(str(error)) from error

    def leave(self, model: Model, kv: ModelKv) -> None:
        """The model takes no memory any more, but for KV that it still holds."""
        self.budget.remove_weights(model.counted_bytes)
        model.vocabulary_bytes = 0
        self.budget.set_guarantee(kv, 0)

    def count_vocabulary(self, model: Model, num_bytes: int) -> None:
        """Grammars have prepared it; the model is awake. What is in the way goes, as for lower limits."""
        model.vocabulary_bytes += num_bytes
        self.budget.add_weights(num_bytes)

    def add_adapter(self, model: Model, num_bytes: int) -> None:
        """Counts what an adapter takes of a model that is awake, and in use. Raises ModelDoesNotFit."""
        self._add(model, num_bytes, "an adapter of")

    def _add(self, model: Model, num_bytes: int, what: str) -> None:
        """what: of the model needs that, for the error."""
        try:
            self._require(model, model.kv, num_bytes)
        except ModelDoesNotFit as error:
            limit = binary_size(self.budget.memory_limit_bytes)
            text = f"{what} {model.name} needs {binary_size(num_bytes)} more, the memory limit is {limit}"
            raise ModelDoesNotFit(text, error.lack) from error
        model.fixed_bytes += num_bytes
        self.budget.add_weights(num_bytes)

    def count_text(self, model: Model, num_tokens: int) -> None:
        """A text of so many tokens is about to be computed by an encoder that is awake. Raises
        ModelDoesNotFit.
        """
        if num_tokens <= self._settings.most_text_tokens:  # counted since the model is awake
            return
        more = self._text_bytes(model, num_tokens) - model.text_bytes
        if more <= 0:
            return
        was_held, model.is_held = model.is_held, True  # lest it sleeps to make room for itself
        try:
            self._add(model, more, f"a text of {num_tokens} tokens for")
        finally:
            model.is_held = was_held
        model.text_bytes += more

    def _text_bytes(self, model: Model, num_tokens: int) -> int:
        if not model.device.info.is_encoder:
            return 0
        num_tokens = max(num_tokens, self._settings.most_text_tokens)
        return model.device.text_bytes(num_tokens, self._settings.max_batch)

    def remove_adapter(self, model: Model, num_bytes: int) -> None:
        """Of a model that is awake."""
        model.fixed_bytes -= num_bytes
        self.budget.remove_weights(num_bytes)

    def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> None:
        """None: as before."""
        budget = self.budget
        budget.set_limits(
            budget.kv_limit_bytes if kv_limit_bytes is None else kv_limit_bytes,
            budget.memory_limit_bytes if memory_limit_bytes is None else memory_limit_bytes,
        )

    def lack(self, num_bytes: int) -> Limits:
        """By how much each limit is too low for so much more KV memory."""
        budget = self.budget
        room = budget.limits - Limits(0, budget.weight_bytes)
        return (NOTHING.plus(budget.limit_bytes + num_bytes) - room).at_least(NOTHING)

    def offers(self, asked: Limits, later_bytes: int, earlier_bytes: int, needed_bytes: int) -> list[Offer]:
        """What could be given of `asked`, and what that would cost; nothing is given up.

        later_bytes, earlier_bytes: what running sequences hold that come after whoever asks, and before.
        needed_bytes: what the latter are about to take besides.
        """
        if not self._is_elastic:
            return offers_of([(Level.FREE, NOTHING, 0.0)], self.budget.slack, asked)
        budget, idle = self.budget, self._idle.all()
        free, uncached, available = (
            budget.free_bytes(None),
            budget.uncached_bytes(None),
            budget.available_bytes(None),
        )
        cached = [model for model in self._models.values() if model.is_awake and model.kv.cached_bytes]
        gains = [
            (Level.FREE, NOTHING, 0.0),
            (Level.SPARE, NOTHING.plus(uncached - free), 0.0),
            (Level.CACHED, NOTHING.plus(available - uncached), self._unused_s(cached)),
            *((level, NOTHING.plus(rung.num_bytes), 0.0) for level, rung in self.ladder.pins),
            (Level.IDLE_MODELS, self._idle.gives, self._unused_s(idle)),
            (Level.SEQUENCES, NOTHING.plus(later_bytes), 0.0),
            (Level.ENDING, NOTHING.plus(earlier_bytes + needed_bytes), 0.0),
        ]
        return offers_of(gains, budget.slack.plus(-needed_bytes), asked)

    def _unused_s(self, models: list[Model]) -> float:
        return self._clock() - min((model.last_used_s for model in models), default=self._clock())

    def settle(self) -> None:
        """Has everybody who can do without memory give it back, as long as there is too little.

        Where that fails no request is to suffer: it is tried again.
        """
        try:
            self._settle()
            self._has_failed = False
        except Exception:
            if not self._has_failed:
                log.exception("memory cannot be given back")
            self._has_failed = True

    def _settle(self) -> None:
        while self._is_elastic and self.budget.debt_bytes:
            self.budget.shrink()
            if not self.budget.debt_bytes or not self.ladder.give_up_one():
                break

    def lease(self, num_bytes: int, weight_bytes: int = 0) -> bool:
        """Takes memory for somebody outside, and for weights there: what is spare or cached, and what idle
        models have. False, and nothing taken, if there is not so much.
        """
        self.budget.add_weights(weight_bytes)
        while not self.budget.lease(num_bytes):
            if num_bytes > self.leasable_bytes + self.ladder.idle_bytes or not self._idle.give_up_one():
                self.budget.remove_weights(weight_bytes)
                return False
        return True

    @property
    def leasable_bytes(self) -> int:
        """What could be leased now, with nobody falling asleep."""
        return max(self.budget.available_bytes(None), 0)

    @property
    def reclaimable_bytes(self) -> int:
        """Spare and cached."""
        return self.budget.reclaimable_bytes

    def relieve(self) -> None:
        """Gives back what is spare, and half of what is cached: the system is short of memory."""
        self.budget.evict_older_half()
        while self.budget.trim():
            pass

    @property
    def is_overcommitted(self) -> bool:
        """Whether a model is larger than its memory: while it runs, the system is always short of memory."""
        return any(model.is_larger_than_memory for model in self._models.values())

    def _make_room(self, model: Model, kv: ModelKv) -> int:
        """What is counted of what the model takes besides KV: all of it, or, where its experts do not fit, as
        many as leave KV half of the room. Raises ModelDoesNotFit.
        """
        info, budget, needed = model.device.info, self.budget, model.needed_bytes
        least = needed - info.idle_weight_bytes
        try:
            self._require(model, kv, needed)
        except ModelDoesNotFit:
            if not info.idle_weight_bytes:
                raise
        else:
            return needed
        self._require(model, kv, least)
        room = budget.most_weights(kv, model.guaranteed_bytes) - least
        counted = least + room - min(room // 2, budget.kv_limit_bytes)
        log.warning(
            "%s is larger than memory: %s of its %s are counted; other experts come from the file when "
            "tokens choose them, which is slow",
            model.name,
            binary_size(counted),
            binary_size(needed),
        )
        return counted

    def _require(self, model: Model, kv: ModelKv, fixed_bytes: int) -> None:
        """Raises ModelDoesNotFit, with nobody asleep in vain."""
        while (shortage := self.budget.shortage(kv, fixed_bytes, model.guaranteed_bytes)) is not None:
            missing = shortage.needed_bytes + shortage.taken_bytes - shortage.limit_bytes
            if missing > self._most_given(shortage) or not self._give_up_for(shortage):
                text = describe_shortage(model, shortage, self._models.values(), self.budget)
                raise ModelDoesNotFit(text, Limits(missing, 0) if shortage.is_of_kv else Limits(0, missing))

    def _most_given(self, shortage: Shortage) -> int:
        """What the shortage could become less by. A shortage of KV is one of guarantees alone."""
        idle = self._idle.all()
        if shortage.is_of_kv:
            return sum(model.guaranteed_bytes for model in idle)
        unused = (max(model.guaranteed_bytes - model.kv.used_bytes, 0) for model in idle)
        return self.ladder.pinned_bytes + sum(unused) + sum(model.counted_bytes for model in idle)

    def _give_up_for(self, shortage: Shortage) -> bool:
        if not shortage.is_of_kv and self.ladder.give_up_one():
            return True
        return self._idle.put_to_sleep()
