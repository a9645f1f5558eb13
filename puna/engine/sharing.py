"""An engine that shares its memory with others, each under limits that are moved between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from puna.engine.memory.engine_memory import EngineMemory
from puna.engine.memory.offers import Level, Offer, Short
from puna.engine.request import Request
from puna.engine.scheduling.scheduler import Scheduler
from puna.engine.sequences.sequence import Order
from puna.kv.limits import NOTHING, Limits, total


class Parked(NamedTuple):
    """A request whose model cannot wake before other engines have given memory."""

    request: Request
    order: Order
    lack: Limits


class MemorySharing:
    """Memory that this engine lacks and others could give, and memory that it could give to them."""

    def __init__(self, memory: EngineMemory, scheduler: Scheduler) -> None:
        self._memory = memory
        self._budget = memory.budget
        self._scheduler = scheduler
        self._whole = memory.budget.limits  # of all engines together
        self._others = NOTHING  # what of it the others have
        self._parked: dict[str, Parked] = {}

    def set_whole(self, whole: Limits | None, reachable: Limits | None) -> None:
        """After the limits: see EngineCore.set_limits()."""
        self._whole = whole or self._budget.limits
        self._count_others()
        if reachable is None:
            self.hope()
        else:
            self._budget.elsewhere = reachable

    def hope(self) -> None:
        """A new request may get all that other engines have, until they say how much they can give."""
        self._budget.elsewhere = self._others

    def may_come(self, lack: Limits) -> bool:
        """Whether others could give so much."""
        return bool(lack) and self._budget.elsewhere.covers(lack)

    def park(self, request: Request, order: Order, lack: Limits) -> None:
        self._parked[request.id] = Parked(request, order, lack)

    def take_parked(self, wanted: Callable[[Request], bool] = lambda _: True) -> list[Parked]:
        """They are parked no more."""
        taken = [parked for parked in self._parked.values() if wanted(parked.request)]
        for parked in taken:
            del self._parked[parked.request.id]
        return taken

    @property
    def shortage(self) -> Short | None:
        """What the first request in order lacks that waits for memory, if others could give it."""
        if not self._budget.elsewhere:
            return None
        waiting = [(parked.order, parked.lack) for parked in self._parked.values()]
        waiting += [(s.order, self._memory.lack(missing)) for s, missing in self._scheduler.shortages()]
        order, lack = min(waiting, default=(None, NOTHING), key=lambda each: each[0])
        return Short(lack, order[0]) if order and lack else None

    def offers(self, asked: Limits, order_s: float) -> list[Offer]:
        """Parts of `asked` that it could give for a request of that order, cheapest first; none is given."""
        offers = self._memory.offers(asked, *self._scheduler.held_bytes(order_s))
        short = self.shortage
        if short is not None and short.order_s < order_s:  # nothing, before that one has got what it lacks
            return [Offer(Level.ENDING, 0.0, total(offer.gives for offer in offers))]
        return offers

    def give_up(self, asked: Limits, order_s: float) -> Limits:
        """Lowers the limits for somebody who came then, by what offers() promises of `asked`, or as much of
        it as can be given up now: returns that.
        """
        budget, offers = self._budget, self.offers(asked, order_s)
        promised = total(offer.gives for offer in offers if offer.level is not Level.ENDING)
        lowered = budget.limits - promised
        budget.set_limits(lowered.kv_bytes, lowered.memory_bytes)
        self._memory.settle()
        while budget.debt_bytes and self._scheduler.preempt_last(order_s):
            self._memory.settle()
        kept = (budget.taken - lowered).at_least(NOTHING).at_most(promised)
        budget.set_limits(lowered.kv_bytes + kept.kv_bytes, lowered.memory_bytes + kept.memory_bytes)
        budget.elsewhere += promised - kept
        self._count_others()
        return promised - kept

    def _count_others(self) -> None:
        self._others = (self._whole - self._budget.limits).at_least(NOTHING)
