"""Requests, limits, leases, models that come, sleep and go, and a disk that is slow: all in random order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from puna.backends.base import ModelLoadError
from puna.engine import EngineCore, EngineSettings, Request
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import HEADER_BYTES
from tests.engine.offload.gated_threads import GatedThreads, stop_at_each_block
from tests.engine.toy import (
    BLOCK_BYTES,
    Results,
    ToyBackend,
    ToyClock,
    ToyModel,
    Windows,
    expected_tokens,
    toy_bytes_for,
    toy_context,
    toy_num_windows,
    toy_request,
)
from tests.engine.toy_memory import ToyDeviceMemory

pytestmark = pytest.mark.native

FILE_BYTES = HEADER_BYTES + BLOCK_BYTES
BLOCKS = {"a": 1, "b": 1, "c": 3}
"""Models, and what a block of each takes."""
WINDOWS: list[Windows] = [(None,), (None,), (None, 20), (None, 33, 7), (40,), (17, 1)]
STATES = [0, 0, 1, 5]
"""Of recurrent layers, in blocks; 0: there are none."""
LONG = [i % 7 for i in range(9 * BLOCK_TOKENS + 3)]
NUM_ACTIONS = 150
_MOST_STEPS = 20_000


class Chaos:
    """An engine to which everything happens. What must hold is checked after each thing."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.extent_blocks = seed % 3 + 1
        self.device, self.may_refuse = ToyDeviceMemory(), seed % 2 == 1
        self.is_calm = self.random.random() < 0.5
        self.clock, self.backend, self.threads = ToyClock(), ToyBackend(), GatedThreads(self.random)
        chosen = EngineSettings(
            kv_limit_bytes=self.random.choice([25, 60, 150]) * BLOCK_BYTES,
            memory_limit_bytes=self.random.choice([60, 120, 250]) * BLOCK_BYTES,
            kv_dir=str(directory),
            state_key=bytes(32),
            kv_disk_bytes=self.random.choice([12, 60, 1000]) * FILE_BYTES,
            max_running=self.random.choice([None, None, 1, 3]),
            prefill_tokens=self.random.choice([32, 256]),
            cache_policy=self.random.choice(["prefix", "prefix", "slots"]),
        )
        self.has_sessions = chosen.cache_policy == "prefix"
        self.engine = EngineCore(self.backend, chosen, self.clock)
        self.engine.prefixes.use_threads(self.threads)
        self.budget = self.engine.memory.budget
        self.windows = {model_id: self.random.choice(WINDOWS) for model_id in BLOCKS}
        self.states = {model_id: self.random.choice(STATES) for model_id in BLOCKS}
        self.models: dict[str, ToyModel] = {}  # that are awake
        self.asleep: dict[str, ToyModel] = {}
        self.leases: list[int] = []
        self.used_bytes = 0  # committed and leased
        self.results = Results()
        self.wanted: dict[str, list[int]] = {}
        self.model_of: dict[str, str] = {}
        self.num_bytes: dict[str, int] = {}
        self.spoilt: set[str] = set()
        self.squeezed: set[str] = set()
        self.num_idle_steps = 0
        for model_id in BLOCKS:
            self.load(model_id)
        self.check()

    @property
    def unfinished(self) -> list[str]:
        return [request_id for request_id in self.wanted if request_id not in self.results.last]

    def act(self) -> None:
        actions = [
            *[self.submit] * 8,
            *[self.step] * 8,
            *[self.work_on_files] * 8,
            self.cancel,
            self.come_or_go,
            self.come_or_go,
            self.end_lease,
            self.sleep_or_wake,
            self.set_limits,
            self.lease,
            self.end_lease,
            self.wait,
            self.wait,
            self.give_memory_back,
            self.save_all,
            self.harm_a_file,
        ]
        if self.may_refuse:
            actions.append(self.limit_the_device)
        action = self.random.choice(actions)
        if self.is_calm and action in (self.come_or_go, self.sleep_or_wake, self.set_limits):
            action = self.random.choice([action, self.wait, self.work_on_files, self.submit])
        action()
        self.check()

    def load(self, model_id: str) -> None:
        blocks = BLOCKS[model_id]
        model = ToyModel(
            list(BLOCKS).index(model_id),
            context_length=self.random.choice([1000, 1000, 250]),
            block_bytes=blocks * BLOCK_BYTES,
            windows=self.windows[model_id],
            state_bytes=self.states[model_id] * blocks * BLOCK_BYTES,
            weight_bytes=self.random.choice([0, 5, 11]) * BLOCK_BYTES,
            clock=self.clock,
            step_s=0.001,
            extent_blocks=self.extent_blocks,
            device_memory=self.device,
        )
        guaranteed = self.random.choice([0, 0, 4, 9]) * blocks * BLOCK_BYTES
        try:
            self.engine.attach_model(model_id, model, guaranteed_bytes=guaranteed)
        except ModelLoadError:
            assert model.closed
        else:
            self.models[model_id] = model
            self.engine.hold_model(model_id, is_held=True)

    def submit(self) -> None:
        random, request_id = self.random, f"r{len(self.wanted)}"
        model_id = random.choice([*self.models, *self.models, *self.models, "none"])
        prompt = (
            random.choice([[], [], [1]]) + LONG[: random.choice([len(LONG), len(LONG), 128, 100, 70, 20])]
        )
        prompt = prompt + [random.randrange(4) for _ in range(random.randrange(20))]
        max_tokens = random.choice([0, 1, 7, 40, 90])
        draft_models = [None, None, *(model_id for model_id in BLOCKS if not self.states[model_id])]
        has_session = self.has_sessions and not self.states.get(model_id)
        request = toy_request(
            request_id,
            prompt,
            max_tokens,
            model_id=model_id,
            num_draft=random.choice([0, 0, None]),
            draft_model_id=random.choice(draft_models),
            cache_salt=random.choice(["", "", "", "tenant"]),
            cache_prompt=random.random() < 0.8,
            priority=random.choice([-1, 0, 0, 1]),
            session=random.choice([None, None, "s", "t"]) if has_session else None,
            boundaries=random.choice([[], [len(prompt) // 2, len(prompt) - 3], [len(prompt)]]),
            shift=random.random() < 0.3,
            context_length=random.choice([None, None, max(len(prompt), 100), len(prompt) + 30]),
            num_keep=random.choice([0, 5, 40]),
        )
        self.wanted[request_id] = []
        self.model_of[request_id] = model_id
        if model := self.models.get(model_id):
            self.expect(request, model)
        else:
            self.spoilt.add(request_id)
        self.engine.submit(request)

    def expect(self, request: Request, model: ToyModel) -> None:
        """Notes what it must get if there is ever room for it, and what it needs."""
        info, prompt, max_tokens = model.info, request.prompt, request.max_tokens
        context = toy_context(request, info, self.most_bytes(request.model_id, leased_bytes=0))
        if len(prompt) > context:
            self.squeezed.add(request.id)
            return
        shifts = request.shift and info.can_shift
        count = max_tokens if shifts else min(max_tokens, max(context - len(prompt), 1))
        self.wanted[request.id] = expected_tokens(
            prompt,
            count,
            model.salt,
            context_length=context if shifts else None,
            num_keep=min(request.num_keep, context - 1),
            windows=model.windows,
            has_state=model.info.state_bytes > 0,
        )
        length = min(len(prompt) + count, info.context_length)
        self.num_bytes[request.id] = toy_bytes_for(info, length, toy_num_windows(request, info, context))

    def most_bytes(self, model_id: str, leased_bytes: int | None = None) -> int:
        """leased_bytes: None: what is leased."""
        leased_bytes = self.budget.leased_bytes if leased_bytes is None else leased_bytes
        model = self.models[model_id]
        memories = self.engine._models[model_id].kv.memories
        others = sum(
            self.budget.guaranteed_bytes(other.kv)
            for other in self.engine._models.values()
            if other.id != model_id and other.is_awake
        )
        room = max(self.budget.limit_bytes - leased_bytes - others, 0)
        several = [memory.extent_bytes for memory in memories if memory.extent_blocks > 1]
        if several and room < 8 * max(several):
            return room  # it is too coarse
        if len(memories) > 1:
            for group, memory in zip(model.info.groups, memories, strict=True):
                num_extents = 3 if group.window and memory.extent_blocks > 1 else 1
                room -= num_extents * memory.extent_bytes - memory.block_bytes
            return max(room, 0)
        return room // memories[0].extent_bytes * memories[0].extent_bytes

    def step(self) -> None:
        for _ in range(self.random.choice([1, 1, 5, 30])):
            self.step_once()
            self.check()

    def step_once(self) -> None:
        before = sum(len(model.steps) for model in self.models.values())
        outputs = self.engine.step()
        self.note_squeezed()
        self.results.add(outputs)
        is_busy = outputs or sum(len(model.steps) for model in self.models.values()) > before
        assert self.engine.is_stalled == (not is_busy)
        if is_busy or not self.engine.has_work or self.threads.is_reading:
            self.num_idle_steps = 0
        else:
            self.num_idle_steps += 1
            assert self.num_idle_steps < 3, "the engine has work and does none"

    def work_on_files(self) -> None:
        for _ in range(self.random.choice([1, 3, 20, 100])):
            self.threads.advance()
            self.check()

    def cancel(self) -> None:
        if self.unfinished:
            request_id = self.random.choice(self.unfinished)
            self.spoilt.add(request_id)
            self.engine.cancel(request_id)

    def come_or_go(self) -> None:
        model_id = self.random.choice([*BLOCKS])
        if model_id in self.models or model_id in self.asleep:
            self.spoil(model_id)
            self.engine.unload_model(model_id)
            model = self.models.pop(model_id, None) or self.asleep.pop(model_id)
            assert model.closed
        if model_id not in self.models and self.random.random() < 0.7:
            self.load(model_id)

    def sleep_or_wake(self) -> None:
        model_id = self.random.choice([*self.models, *self.asleep, "none"])
        if model_id in self.models:
            self.spoil(model_id)
            self.engine.sleep_model(model_id)
            self.asleep[model_id] = self.models.pop(model_id)
            if self.random.random() < 0.5:
                return
        if model_id in self.asleep:
            try:
                self.engine.wake_model(model_id)
            except ModelLoadError:
                pass
            else:
                self.models[model_id] = self.asleep.pop(model_id)
                self.engine.hold_model(model_id, is_held=True)

    def spoil(self, model_id: str) -> None:
        self.spoilt |= {r for r in self.unfinished if self.model_of[r] == model_id}

    def set_limits(self) -> None:
        kv_blocks = self.random.choice([None, 0, 12, 25, 40, 60, 60, 150, 150])
        memory_blocks = self.random.choice([None, None, 30, 60, 120, 250, 250])
        excess = self.engine.set_limits(
            None if kv_blocks is None else kv_blocks * BLOCK_BYTES,
            None if memory_blocks is None else memory_blocks * BLOCK_BYTES,
        )
        assert excess == self.budget.excess_bytes

    def limit_the_device(self) -> None:
        num_blocks = self.random.choice([None, None, 15, 30, 80])
        self.device.limit_bytes = None if num_blocks is None else num_blocks * BLOCK_BYTES

    def lease(self) -> None:
        is_held = self.random.random() < 0.1
        num_bytes = self.random.choice([1, 100, 640, 1500])
        if self.random.random() < 0.2:
            num_bytes = max(self.engine.memory.leasable_bytes, 1)
        leasable = self.engine.memory.leasable_bytes
        before = sum(model.used_kv_bytes for model in self.engine.stats().models)
        granted = self.engine.lease(num_bytes, is_held=is_held)
        assert granted == (is_held or num_bytes <= leasable)
        assert before == sum(model.used_kv_bytes for model in self.engine.stats().models)
        if granted:
            self.leases.append(num_bytes)
        if is_held:
            self.used_bytes += num_bytes

    def end_lease(self) -> None:
        if self.leases:
            self.engine.end_lease(self.leases.pop(self.random.randrange(len(self.leases))))

    def wait(self) -> None:
        self.clock.now_s += self.random.choice([0.5, 4.0])
        self.engine.prefixes.tend()

    def give_memory_back(self) -> None:
        self.random.choice([self.engine.trim, self.engine.trim_kv, self.engine.memory.relieve])()

    def save_all(self) -> None:
        self.engine.prefixes.save_all(lambda: None)

    def harm_a_file(self) -> None:
        paths = sorted(
            path for path in self.directory.rglob("*.kv") if path.is_file() and not path.is_symlink()
        )
        if not paths:
            return
        path = self.random.choice(paths)
        content = bytearray(path.read_bytes())
        path.unlink()
        match self.random.randrange(5):
            case 0:
                path.mkdir()
            case 1:
                path.symlink_to(self.random.choice(paths))
            case 2:
                path.write_bytes(content[: self.random.randrange(len(content))])
            case 3:
                content[self.random.randrange(len(content))] ^= 0x10
                path.write_bytes(content)

    def check(self) -> None:
        self.engine.check()
        used_bytes = self.budget.committed_bytes + self.budget.leased_bytes
        assert used_bytes <= max(self.budget.limit_bytes, self.used_bytes)
        self.used_bytes = used_bytes
        assert self.device.used_bytes == self.budget.committed_bytes
        if self.device.limit_bytes is not None:
            self.squeezed |= set(self.unfinished)
        assert self.budget.leased_bytes == sum(self.leases)
        assert self.budget.weight_bytes == sum(model.info.weight_bytes for model in self.models.values())
        self.note_squeezed()
        for request_id, tokens in self.results.tokens.items():
            wanted = self.wanted[request_id]
            assert tokens == wanted[: len(tokens)], request_id

    def note_squeezed(self) -> None:
        for request_id in self.unfinished:
            model_id = self.model_of[request_id]
            if model_id in self.models and self.num_bytes.get(request_id, 0) > self.most_bytes(model_id):
                self.squeezed.add(request_id)

    def finish(self) -> None:
        for _ in range(_MOST_STEPS):
            if self.engine.has_work:
                self.step_once()
            elif not self.threads.advance():
                break
            self.check()
        for request_id in self.wanted:
            assert request_id in self.results.last, f"{request_id} got lost"
            last = self.results.last[request_id]
            if last.finish_reason == "length":
                assert self.results.tokens[request_id] == self.wanted[request_id]
            elif request_id not in self.spoilt:
                assert request_id in self.squeezed, last
                assert "KV memory" in last.error or "do not fit" in last.error, last

    def close(self) -> None:
        self.engine.prefixes.stop()
        self.threads.finish()
        self.engine.check()
        self.engine.close()
        assert self.budget.committed_bytes == self.budget.weight_bytes == 0
        assert not self.threads.has_work
        self.backend.close()


@pytest.mark.parametrize("seed", range(24))
def test_everything_at_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stop_at_each_block(monkeypatch)
    chaos = Chaos(seed, tmp_path)
    for _ in range(NUM_ACTIONS):
        chaos.act()
    if seed % 4:  # or it ends in the middle
        chaos.finish()
    chaos.close()
