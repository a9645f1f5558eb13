"""Whatever comes in whatever order: every request gets its own output, and no block is lost."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from puna.engine import EngineCore, EngineSettings, Request
from puna.engine.memory.load_errors import ModelDoesNotFit
from tests.engine.offload.fake_threads import FakeThreads
from tests.engine.toy import (
    BLOCK_BYTES,
    GREEDY,
    POISON,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    Windows,
    expected_tokens,
    run_all,
    toy_bytes_for,
    toy_context,
    toy_engine,
    toy_num_windows,
    toy_request,
    toy_tokens_within,
)

pytestmark = pytest.mark.native

PREFIXES = [[], [i % 5 for i in range(20)], [i % 7 for i in range(64)], [i % 7 for i in range(45)]]
"""Full blocks, parts of blocks, and one that leaves another's within a block."""


class SteadyClock(ToyClock):
    """All steps take the same time, so drafts seem to pay."""

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


MODELS: dict[str, Callable[[Windows, int], ToyModel]] = {
    "first": lambda windows, states: ToyModel(
        windows=windows, state_bytes=states * BLOCK_BYTES, is_habitual=True, predicts=windows[0] is None
    ),
    "second": lambda windows, states: ToyModel(
        1,
        context_length=90,
        block_bytes=3 * BLOCK_BYTES,
        windows=windows,
        state_bytes=3 * states * BLOCK_BYTES,
        can_shift=False,
        is_habitual=True,
    ),
}
WINDOWS: list[Windows] = [(None,), (None, 20), (None, 33, 7), (24,), (40, 1)]
STATES = [0, 0, 1, 3]
"""Of recurrent layers, in blocks; 0: there are none."""

SESSIONS = ["a", "b"]

engine_settings = st.fixed_dictionaries(
    {
        "cache_policy": st.sampled_from(["prefix", "prefix", "slots"]),
        "multi_user_cache": st.booleans(),
        "prefill_tokens": st.sampled_from([17, 32, 256]),
        "min_prefill_tokens": st.sampled_from([1, 16]),
        "max_running": st.sampled_from([None, None, None, 1, 3]),
        "max_batch": st.sampled_from([2, 256, 256]),
        "max_queue": st.sampled_from([None, None, None, None, 3]),
    }
)
requests = st.fixed_dictionaries(
    {
        "model_id": st.sampled_from([*MODELS, "first"]),
        "prompt": st.builds(
            lambda prefix, tail: prefix + tail,
            st.sampled_from(PREFIXES),
            st.lists(st.integers(0, 3), max_size=20),
        ),
        "boundaries": st.lists(st.integers(1, 84), max_size=3, unique=True).map(sorted),
        "max_tokens": st.sampled_from([0, 1, 30, 70, 110]),
        "stop_tokens": st.sampled_from([[], [], [], [11, 12, 13, 14, 15]]),
        "context_length": st.sampled_from([None, None, 1, 5, 16, 40, 47, 80]),
        "shift": st.booleans(),
        "num_keep": st.sampled_from([0, 4, 16, 33, 100]),
        "priority": st.sampled_from([0, 0, -1, 1]),
        "cache_prompt": st.sampled_from([True, True, True, False]),
        "cache_salt": st.sampled_from(["", "", "tenant"]),
        "cache_to_disk": st.booleans(),
        "num_draft": st.sampled_from([None, 0, 3]),
        "draft_model_id": st.sampled_from([None, None, None, *MODELS]),
        "session": st.sampled_from([None, None, None, *SESSIONS]),
    }
)


def expected(request: Request, model: ToyModel, most_bytes: int, context: int) -> list[int] | None:
    """The tokens that a request must get; None: it must be refused.

    most_bytes: that the model may have now; context: see toy_context(), with what it may have one day.
    """
    num_prompt = len(request.prompt)
    num_windows = toy_num_windows(request, model.info, context) if context else 1
    needed = toy_bytes_for(model.info, num_prompt, num_windows)
    if not 0 < num_prompt <= context or needed > most_bytes:
        return None
    shifts = request.shift and model.info.can_shift
    count = request.max_tokens if shifts else min(request.max_tokens, max(context - num_prompt, 1))
    tokens = expected_tokens(
        request.prompt,
        count,
        model.salt,
        is_habitual=model.is_habitual,
        context_length=context if shifts else None,
        num_keep=min(request.num_keep, context - 1),
        windows=model.windows,
        has_state=model.info.state_bytes > 0,
    )
    stops = (i for i, token in enumerate(tokens) if token in request.stop_tokens)
    return tokens[: next(stops, count)]


class Schedules(RuleBasedStateMachine):
    """Two models under one budget; requests come, are cancelled, lose their model, or run to their end.

    The limit changes, others lease memory, and some may be guaranteed to a model.
    """

    @initialize(
        num_blocks=st.integers(5, 20),
        values=engine_settings,
        may_fail=st.booleans(),
        first=st.lists(requests, min_size=2, max_size=8),
        windows=st.fixed_dictionaries({model_id: st.sampled_from(WINDOWS) for model_id in MODELS}),
        states=st.fixed_dictionaries({model_id: st.sampled_from(STATES) for model_id in MODELS}),
    )
    def start(
        self,
        num_blocks: int,
        values: dict[str, Any],
        may_fail: bool,
        first: list[dict[str, Any]],
        windows: dict[str, Windows],
        states: dict[str, int],
    ) -> None:
        self.windows, self.states = windows, states
        self.backend, self.clock = ToyBackend(), SteadyClock()
        self.files, self.threads = tempfile.TemporaryDirectory(), FakeThreads()
        chosen = EngineSettings(
            kv_limit_bytes=num_blocks * BLOCK_BYTES,
            state_key=bytes(32),
            sessions_dir=self.files.name,
            **values,
        )
        self.engine = EngineCore(self.backend, chosen, self.clock)
        self.budget = self.engine.memory.budget
        self.leases: list[int] = []
        self.total_bytes = 0  # committed and leased
        self.models: dict[str, ToyModel] = {}
        for model_id in MODELS:
            self._load(model_id)
        self.may_fail = may_fail
        self.ids = itertools.count()
        self.wanted: dict[str, list[int] | None] = {}
        self.model_of: dict[str, str] = {}
        self.unfinished: list[str] = []
        self.spoilt: set[str] = set()  # cancelled, or without a model: they may end in the middle
        self.num_bytes: dict[str, int] = {}  # that a request may come to need
        self.squeezed: set[str] = set()  # for whom there was too little memory at some time
        self.results = Results()
        self.engine.sessions.use_threads(self.threads)
        self.num_transfers = 0
        self.ends: list[Exception | None] = []
        for fields in first:
            self._submit(**fields)

    def _load(self, model_id: str, guaranteed_kv_bytes: int = 0) -> None:
        model = MODELS[model_id](self.windows[model_id], self.states[model_id])
        try:
            self.engine.attach_model(model_id, model, guaranteed_bytes=guaranteed_kv_bytes)
        except ModelDoesNotFit:
            assert model.closed
        else:
            self.models[model_id] = model
            self.engine.hold_model(model_id, is_held=True)

    def _most_bytes(self, model_id: str, *, are_leases_over: bool = False) -> int:
        block_bytes = self.models[model_id].info.groups[0].block_bytes
        others = sum(
            self.budget.guaranteed_bytes(self.engine._models[other].kv)
            for other in self.models
            if other != model_id
        )
        leased = 0 if are_leases_over else self.budget.leased_bytes
        return max(self.budget.limit_bytes - leased - others, 0) // block_bytes * block_bytes

    @rule(values=requests, count=st.sampled_from([1, 1, 8]))
    def submit(self, values: dict[str, Any], count: int) -> None:
        for _ in range(count):
            self._submit(**values)

    @rule(model_id=st.sampled_from(list(MODELS)), token=st.integers(0, 5))
    def submit_what_takes_all_memory(self, model_id: str, token: int) -> None:
        if model_id in self.models:
            num_tokens = toy_tokens_within(self.models[model_id].info, self._most_bytes(model_id))
            prompt = [token] * max(num_tokens - 7, 9)
            self._submit(model_id=model_id, prompt=prompt, max_tokens=5, priority=9)

    def _submit(self, **values: Any) -> None:
        values["boundaries"] = [at for at in values.get("boundaries", []) if at <= len(values["prompt"])]
        if self.states[values["model_id"]]:
            values["session"] = None
        request = Request(id=str(next(self.ids)), sampling=GREEDY, **values)
        is_possible = (
            request.model_id in self.models
            and (request.session is None or self.engine.settings.cache_policy == "prefix")
            and not (self._drafts(request) and self.states[request.draft_model_id])
        )
        if is_possible:
            model, most_bytes = self.models[request.model_id], self._most_bytes(request.model_id)
            one_day = self._most_bytes(request.model_id, are_leases_over=True)
            context = toy_context(request, model.info, one_day)
            wanted = expected(request, model, most_bytes, context)
            longest = min(len(request.prompt) + len(wanted or []), model.info.context_length)
            num_windows = toy_num_windows(request, model.info, context) if context else 1
            self.num_bytes[request.id] = toy_bytes_for(model.info, longest, num_windows)
        self.wanted[request.id] = wanted if is_possible else None
        self.model_of[request.id] = request.model_id
        self.unfinished.append(request.id)
        self.engine.submit(request)
        self._check()

    def _drafts(self, request: Request) -> bool:
        return request.draft_model_id in self.models and request.num_draft != 0

    @precondition(lambda self: self.may_fail)
    @rule(model_id=st.sampled_from(list(MODELS)))
    def submit_what_makes_a_step_fail(self, model_id: str) -> None:
        self._submit(model_id=model_id, prompt=[1, POISON], max_tokens=5)
        self.spoilt.add(self.unfinished[-1])

    @rule(count=st.sampled_from([1, 3, 10, 40]))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.results.add(self.engine.step())
            self._check()
        self._check_results()

    @rule(num_blocks=st.integers(0, 25), memory_blocks=st.sampled_from([None, None, 4, 12, 25]))
    def set_limits(self, num_blocks: int, memory_blocks: int | None) -> None:
        memory_limit = None if memory_blocks is None else memory_blocks * BLOCK_BYTES
        excess = self.engine.set_limits(num_blocks * BLOCK_BYTES, memory_limit)
        if not any(model.num_running for model in self.engine.stats().models) and not self.leases:
            assert excess == 0
        self._check()

    @rule(num_bytes=st.integers(1, 12 * BLOCK_BYTES))
    def lease(self, num_bytes: int) -> None:
        leasable = self.engine.memory.leasable_bytes
        used = [model.used_kv_bytes for model in self.engine.stats().models]
        assert self.engine.lease(num_bytes) == (num_bytes <= leasable)
        assert used == [model.used_kv_bytes for model in self.engine.stats().models]
        self.leases += [num_bytes] * (num_bytes <= leasable)
        self._check()

    @precondition(lambda self: self.leases)
    @rule()
    def end_lease(self) -> None:
        self.engine.end_lease(self.leases.pop())
        self._check()

    @rule()
    def relieve(self) -> None:
        self.engine.memory.relieve()
        self._check()

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.unfinished))
        self.spoilt.add(request_id)
        self.engine.cancel(request_id)
        self.engine.check()

    @rule(guaranteed_blocks=st.sampled_from([0, 0, 3, 7]))
    def unload_or_load(self, guaranteed_blocks: int) -> None:
        if "second" in self.models:
            del self.models["second"]
            self.spoilt |= {name for name in self.unfinished if self.model_of[name] == "second"}
            self.engine.unload_model("second")
        else:
            self._load("second", guaranteed_blocks * BLOCK_BYTES)
        self._check()

    @rule(model_id=st.sampled_from(list(MODELS)), name=st.sampled_from(SESSIONS))
    def remove_session(self, model_id: str, name: str) -> None:
        self.engine.sessions.remove(model_id, name)
        self.engine.check()

    @rule(name=st.sampled_from(SESSIONS), does_save=st.booleans())
    def save_or_load_session(self, name: str, does_save: bool) -> None:
        sessions = self.engine.sessions
        (sessions.save if does_save else sessions.load)("first", name, self.ends.append)
        self.num_transfers += 1
        self.engine.check()

    @rule()
    def let_a_thread_work(self) -> None:
        self.threads.run_one(reads=True)
        self.engine.check()

    @rule(does_forget=st.booleans())
    def give_memory_back(self, does_forget: bool) -> None:
        if does_forget:
            self.engine.trim_kv()
        else:
            self.engine.trim()
        self.engine.check()

    @rule(seconds=st.sampled_from([0.01, 1.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def teardown(self) -> None:
        if not hasattr(self, "engine"):  # pragma: no cover
            return
        run_all(self.engine, self.results)
        self._check_results()
        assert not self.unfinished, "a request without an end"
        self.threads.run()
        assert len(self.ends) == self.num_transfers
        for model_id, name in itertools.product(self.models, SESSIONS):
            self.engine.sessions.remove(model_id, name)
        self.engine.trim_kv()
        self.engine.check()
        assert all(model.committed_kv_bytes == 0 for model in self.engine.stats().models)
        assert self.budget.leased_bytes == sum(self.leases)
        self.engine.close()
        self.backend.close()
        self.files.cleanup()

    def _check(self) -> None:
        """The books, and that limits are exceeded only by what was there when they were lowered."""
        self.engine.check()
        total = self.budget.committed_bytes + self.budget.leased_bytes
        assert total <= max(self.budget.limit_bytes, self.total_bytes)
        self.total_bytes = total
        self.squeezed |= {
            name
            for name in self.unfinished
            if self.model_of[name] in self.models
            and self.num_bytes.get(name, 0) > self._most_bytes(self.model_of[name])
        }

    def _check_results(self) -> None:
        for request_id in list(self.unfinished):
            tokens, last = self.results.tokens.get(request_id, []), self.results.last.get(request_id)
            wanted = self.wanted.get(request_id)
            assert tokens == (wanted or [])[: len(tokens)], request_id
            if last is None:
                continue
            self.unfinished.remove(request_id)
            note(f"{request_id}: {last.finish_reason} {last.error or ''}")
            if last.finish_reason in ("stop", "length"):
                assert tokens == wanted
            elif last.finish_reason == "busy":
                assert not tokens
                assert self.engine.settings.max_queue is not None
            else:
                assert (
                    wanted is None
                    or request_id in self.spoilt
                    or (request_id in self.squeezed and "of KV memory, the limits leave it" in last.error)
                    or self._was_failed_by_another(last)
                )

    def _was_failed_by_another(self, last: Any) -> bool:
        return self.may_fail and "the model failed to run: poisoned" in (last.error or "")


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    ("num_blocks", "windows"),
    [(8, (None,)), (10, (None,)), (17, (None,)), (18, (None, 20)), (5, (24,))],
)
def test_who_waits_for_memory_waits_no_longer_than_for_one_after_the_other(num_blocks: int, windows: Windows):
    """Steps until each of 32 requests is done, in a pool for a few of them, and in turn on their own."""
    waiting = [
        toy_request(str(i), [i] * (5 + 7 * i % 60), 20 + 13 * i % 50, num_draft=0, priority=i % 3)
        for i in range(32)
    ]

    def steps(requests: list[Request]) -> dict[str, int]:
        engine = toy_engine(ToyModel(windows=windows), num_blocks=num_blocks)
        for request in requests:
            engine.submit(request)
        done = {}
        for number in itertools.count(1):
            done |= {output.request_id: number for output in engine.step() if output.finish_reason}
            engine.check()
            if not engine.has_work:
                assert len(requests) == 1 or engine.stats().models[0].num_preemptions > 0
                return done
        raise AssertionError

    together, longest = steps(waiting), 0
    for request in sorted(waiting, key=lambda request: -request.priority):
        longest += steps([request])[request.id]
        assert together[request.id] <= longest
