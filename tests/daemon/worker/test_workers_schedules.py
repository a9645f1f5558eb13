"""Whatever comes in whatever order to two engines that share memory: there is enough, and nobody starves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from puna.daemon.worker.memory import WorkersMemory
from puna.engine import EngineCore, EngineSettings
from puna.engine.memory.offers import Short
from puna.kv.limits import NOTHING, Limits
from puna.worker.cage import CageLevel
from puna.worker.engine.messages import EndLease, GetOffers, GiveUp, Lease, Leased, Ready, SetLimits
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    expected_tokens,
    toy_request,
)

pytestmark = pytest.mark.native

WHOLE = Limits(60 * BLOCK_BYTES, 100 * BLOCK_BYTES)
READY = Ready(
    kv_limit_bytes=WHOLE.kv_bytes,
    memory_limit_bytes=WHOLE.memory_bytes,
    cage=CageLevel(landlock=0, seccomp=False, is_low=False),
)
SETTINGS = EngineSettings(
    kv_limit_bytes=WHOLE.kv_bytes, memory_limit_bytes=WHOLE.memory_bytes, kv_idle_s=3600
)
MOST_STEPS = 3000
workers = st.integers(0, 1)
models = st.sampled_from("mn")


class Worker:
    """A worker and its client: an engine of the test's own thread, with two models."""

    def __init__(self, clock: ToyClock) -> None:
        self.engine = EngineCore(ToyBackend(), SETTINGS, clock)
        self.on_short: Any = None
        self.results = Results()

    def load(self, clock: ToyClock) -> None:
        for name, weights in (("m", 20), ("n", 30)):
            model = ToyModel(ord(name), weight_bytes=weights * BLOCK_BYTES, clock=clock, step_s=0.001)
            self.engine.attach_model(name, model)

    async def call(self, message: Any) -> Any:
        await asyncio.sleep(0)
        engine = self.engine
        match message:
            case SetLimits(kv_limit_bytes, memory_limit_bytes, whole, reachable):
                return engine.set_limits(kv_limit_bytes, memory_limit_bytes, whole=whole, reachable=reachable)
            case GetOffers(asked, order_s):
                return engine.sharing.offers(asked, order_s)
            case GiveUp(asked, order_s):
                return engine.sharing.give_up(asked, order_s)
            case Lease(num_bytes, weight_bytes=weight_bytes):
                return Leased(
                    engine.lease(num_bytes, weight_bytes=weight_bytes), engine.memory.leasable_bytes
                )
            case EndLease(num_bytes, weight_bytes):
                return engine.end_lease(num_bytes, weight_bytes)
        raise AssertionError(message)

    ask = call

    @property
    def is_busy(self) -> bool:
        return self.engine.has_work or self.short is not None

    @property
    def short(self) -> Short | None:
        return self.engine.sharing.shortage

    @property
    def taken(self) -> Limits:
        return self.engine.memory.budget.taken


class Sharing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ToyClock()
        self.memory = WorkersMemory()
        self.pair = [Worker(self.clock), Worker(self.clock)]
        for worker in self.pair:
            self.run(self.memory.restore(worker, worker, READY))
            worker.load(self.clock)
        self.expected: dict[str, list[int]] = {}
        self.cancelled: set[str] = set()
        self.leases: list[tuple[Worker, int]] = []
        self.numbers = itertools.count()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @rule(
        number=workers,
        model=models,
        num_prompt=st.integers(1, 400),
        count=st.sampled_from([1, 20, 100]),
        priority=st.sampled_from([0, 0, 0, 1]),
        session=st.sampled_from([None, None, "s"]),
    )
    def submit(
        self, number: int, model: str, num_prompt: int, count: int, priority: int, session: str | None
    ) -> None:
        name = f"{number}{next(self.numbers)}"
        prompt = [len(name) * 7 + num_prompt % 3] * num_prompt
        self.expected[name] = expected_tokens(prompt, count, ord(model))
        request = toy_request(name, prompt, count, model_id=model, priority=priority, session=session)
        self.pair[number].engine.submit(request)

    @rule(number=workers, count=st.integers(1, 5))
    def step(self, number: int, count: int) -> None:
        for _ in range(count):
            self.advance(self.pair[number])

    @rule(number=workers)
    def help(self, number: int) -> None:
        self.tell(self.pair[number])

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        self.cancelled.add(name)
        self.pair[int(name[0])].engine.cancel(name)

    @rule(number=workers, model=models, is_held=st.booleans())
    def hold(self, number: int, model: str, is_held: bool) -> None:
        self.pair[number].engine.hold_model(model, is_held=is_held)

    @rule(number=workers, num_blocks=st.integers(1, 30))
    def lease(self, number: int, num_blocks: int) -> None:
        worker = self.pair[number]
        if self.run(self.memory.lease(worker, num_blocks * BLOCK_BYTES)).granted:
            self.leases.append((worker, num_blocks * BLOCK_BYTES))

    @precondition(lambda self: self.leases)
    @rule()
    def end_lease(self) -> None:
        self.run(self.memory.end_lease(*self.leases.pop()))

    def advance(self, worker: Worker) -> None:
        self.clock.now_s += 0.001
        worker.results.add(worker.engine.step())
        self.check()

    def tell(self, worker: Worker) -> None:
        if (short := worker.short) is not None:
            self.run(self.tell_daemon(worker, short))

    async def tell_daemon(self, worker: Worker, short: Short) -> None:
        worker.on_short(short)
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
            self.check()

    def check(self) -> None:
        limits = NOTHING
        for worker in self.pair:
            worker.engine.check()
            budget = worker.engine.memory.budget
            limits += budget.limits
            assert budget.limits.covers(budget.taken), "more than its limits is taken"
        assert WHOLE.covers(limits), "the limits are more than there is"

    def teardown(self) -> None:
        """Everybody gets what was asked for, or an error that says why not."""
        while self.leases:
            self.end_lease()
        for worker, model in itertools.product(self.pair, "mn"):
            worker.engine.hold_model(model, is_held=False)
        for _ in range(MOST_STEPS):
            if not any(worker.is_busy for worker in self.pair):
                break
            for worker in self.pair:
                self.advance(worker)
                self.tell(worker)
        assert not any(worker.is_busy for worker in self.pair), "somebody starves"
        for name, expected in self.expected.items():
            results = self.pair[int(name[0])].results
            last = results.last[name]
            if last.finish_reason == "error":
                assert "memory" in str(last.error)
            elif last.finish_reason == "cancelled":
                assert name in self.cancelled
            else:
                assert results.tokens[name] == expected
        self.run(self.memory.close())
        for worker in self.pair:
            worker.engine.close()
        self.loop.close()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
