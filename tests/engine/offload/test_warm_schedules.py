"""Whatever is saved, restored, damaged or given up in whatever order: every request gets its own output."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from puna.engine import EngineCore, EngineSettings
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import HEADER_BYTES
from tests.engine.offload.fake_threads import FakeThreads
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    Windows,
    expected_tokens,
    run_all,
    toy_request,
)

pytestmark = pytest.mark.native

FILE_BYTES = HEADER_BYTES + BLOCK_BYTES
LONG = [i % 7 for i in range(9 * BLOCK_TOKENS + 3)]
prompts = st.builds(
    lambda first, length, tail: [*first, *LONG[:length], *tail],
    st.sampled_from([[], [], [1]]),
    st.sampled_from([len(LONG), len(LONG), 8 * BLOCK_TOKENS, 100, 70, 20]),
    st.lists(st.integers(0, 3), max_size=20),
)
_STATE = 3 * BLOCK_BYTES
KINDS: list[tuple[Windows, int]] = [
    *(((None,), 0), ((None, 33), 0), ((None, 5), 0), ((24, 1), 0)),
    *(((None,), _STATE), ((None, 24), _STATE), ((), _STATE)),
]
"""Windows and state of the first model; the other has neither."""
model_ids = st.sampled_from(["a", "b"])


class WarmSchedules(RuleBasedStateMachine):
    """Two models, a disk for some dozens of blocks, and threads that work when the machine lets them."""

    @initialize(
        num_blocks=st.sampled_from([25, 32, 60]),
        num_files=st.sampled_from([12, 30, 1000]),
        max_running=st.sampled_from([None, None, 1]),
        kind=st.sampled_from(KINDS),
    )
    def start(
        self, num_blocks: int, num_files: int, max_running: int | None, kind: tuple[Windows, int]
    ) -> None:
        self.kind = kind
        self.directory = tempfile.TemporaryDirectory()
        self.clock, self.backend, self.threads = ToyClock(), ToyBackend(), FakeThreads()
        engine_settings = EngineSettings(
            kv_limit_bytes=num_blocks * BLOCK_BYTES,
            kv_dir=self.directory.name,
            state_key=bytes(32),
            kv_disk_bytes=num_files * FILE_BYTES,
            max_running=max_running,
        )
        self.engine = EngineCore(self.backend, engine_settings, self.clock)
        self.engine.prefixes.use_threads(self.threads)
        self.results, self.wanted, self.spoilt = Results(), {}, set()
        self.models: dict[str, ToyModel] = {}
        for model_id in "ab":
            self.load(model_id)

    def load(self, model_id: str) -> None:
        windows, state_bytes = self.kind if model_id == "a" else ((None,), 0)
        self.models[model_id] = ToyModel(
            "ab".index(model_id), windows=windows, state_bytes=state_bytes, clock=self.clock
        )
        self.engine.attach_model(model_id, self.models[model_id])

    @rule(
        prompt=prompts,
        model_id=st.sampled_from(["a", "a", "b"]),
        max_tokens=st.integers(1, 40),
        is_finished=st.booleans(),
        fields=st.fixed_dictionaries(
            {
                "cache_salt": st.sampled_from(["", "", "", "tenant"]),
                "cache_to_disk": st.booleans(),
                "cache_prompt": st.sampled_from([True, True, True, False]),
                "priority": st.integers(-1, 1),
                "session": st.sampled_from([None, None, "s"]),
            }
        ),
    )
    def submit(
        self, prompt: list[int], model_id: str, max_tokens: int, is_finished: bool, fields: dict[str, Any]
    ) -> None:
        request_id = f"r{len(self.wanted)}"
        model = self.models[model_id]
        has_state = model.info.state_bytes > 0
        self.wanted[request_id] = expected_tokens(
            prompt, max_tokens, model.salt, windows=model.windows, has_state=has_state
        )
        fields["boundaries"] = [n for n in (40, 100, len(LONG)) if has_state and n < len(prompt)]
        request = toy_request(request_id, prompt, max_tokens, model_id=model_id, num_draft=0, **fields)
        self.engine.submit(request)
        self.engine.check()
        if is_finished:
            self.finish()

    @rule(count=st.integers(1, 10))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.results.add(self.engine.step())
            self.engine.check()

    @rule(reads=st.booleans())
    def let_threads_work(self, reads: bool) -> None:
        self.threads.run_one(reads=reads)
        self.engine.check()

    @rule()
    def finish(self) -> None:
        while self.engine.has_work or self.threads.has_work:
            run_all(self.engine, self.results)
            self.threads.run()
            self.engine.check()

    @precondition(lambda self: any(r not in self.results.last for r in self.wanted))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from([r for r in self.wanted if r not in self.results.last]))
        self.spoilt.add(request_id)
        self.engine.cancel(request_id)
        self.engine.check()

    @rule(seconds=st.sampled_from([0.1, 0.5, 4.0]), is_finished=st.booleans())
    def wait(self, seconds: float, is_finished: bool) -> None:
        if is_finished:
            self.finish()
        self.clock.now_s += seconds
        self.engine.prefixes.tend()
        self.engine.check()

    @rule(model_id=model_ids, is_finished=st.booleans())
    def reload(self, model_id: str, is_finished: bool) -> None:
        if is_finished:
            self.finish()
        self.spoilt |= {r for r in self.wanted if r not in self.results.last}
        self.engine.unload_model(model_id)
        self.engine.check()
        self.load(model_id)

    @rule()
    def save_all(self) -> None:
        self.engine.prefixes.save_all(lambda: None)
        self.engine.check()

    @rule(is_removed=st.booleans(), data=st.data())
    def damage_a_file(self, is_removed: bool, data: st.DataObject) -> None:
        paths = sorted(Path(self.directory.name).rglob("*.kv"))
        if not paths:
            return
        path = data.draw(st.sampled_from(paths))
        if is_removed:
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= 0x10
            path.write_bytes(content)

    @rule()
    def give_memory_back(self) -> None:
        self.engine.trim_kv()
        self.engine.check()

    @rule(num_blocks=st.sampled_from([25, 32, 60]))
    def change_the_limit(self, num_blocks: int) -> None:
        self.engine.set_limits(num_blocks * BLOCK_BYTES)
        self.engine.check()

    def teardown(self) -> None:
        self.finish()
        for request_id, wanted in self.wanted.items():
            tokens, last = self.results.tokens.get(request_id, []), self.results.last[request_id]
            assert tokens == wanted[: len(tokens)], request_id
            assert tokens == wanted or request_id in self.spoilt, last
        disk = self.engine.stats().disk
        assert disk.num_bytes <= disk.limit_bytes
        self.engine.prefixes.stop()
        self.engine.close()
        assert self.engine.prefixes._num_running == 0
        assert self.engine.memory.budget.committed_bytes == 0
        self.backend.close()
        self.directory.cleanup()


TestWarmSchedules = WarmSchedules.TestCase
TestWarmSchedules.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
