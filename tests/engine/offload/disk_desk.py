"""An engine with a disk, whose file threads work when a test lets them."""

from __future__ import annotations

from pathlib import Path

from puna.engine import EngineCore
from puna.kv import BLOCK_TOKENS
from tests.engine.offload.fake_threads import FakeThreads
from tests.engine.toy import Results, ToyModel, expected_tokens, run_all, toy_engine, toy_request

PROMPT = [i % 7 for i in range(20 * BLOCK_TOKENS + 5)]
OTHER = [1, *PROMPT]


class Desk:
    """An engine with a disk."""

    def __init__(self, directory: Path, model: ToyModel | None = None, **settings: object) -> None:
        self.threads = FakeThreads()
        self._state_bytes = model.info.state_bytes if model else 0
        self.engine: EngineCore = toy_engine(model, kv_dir=str(directory), **settings)
        self.engine.prefixes.use_threads(self.threads)
        self.engine.sessions.use_threads(self.threads)
        self.threads.run()
        self._num_requests = 0

    def submit(self, prompt: list[int], **fields: object) -> str:
        self._num_requests += 1
        request_id = f"r{self._num_requests}"
        self.engine.submit(toy_request(request_id, prompt, **fields))
        return request_id

    def run(self) -> Results:
        results = Results()
        while self.engine.has_work or self.threads.has_work:
            run_all(self.engine, results)
            self.threads.run()
            self.engine.check()
        return results

    def say(self, prompt: list[int], **fields: object) -> int:
        """How many tokens were cached; checks the answer."""
        request_id = self.submit(prompt, **fields)
        results = self.run()
        assert results.tokens[request_id] == expected_tokens(prompt, 10, has_state=self._state_bytes > 0)
        return results.last[request_id].stats.cached_tokens

    def offload(self, model_id: str = "toy") -> None:
        (model,) = [model for model in self.engine.prefixes.models if model.model_id == model_id]
        self.engine.prefixes.offload(model)

    def reload(self) -> None:
        self.engine.unload_model("toy")
        self.engine.attach_model("toy", ToyModel(clock=self.engine._clock, state_bytes=self._state_bytes))

    def tend(self, *, waited: bool = True) -> None:
        """As the worker does between steps."""
        if waited:
            self.engine.prefixes.tend()
            self.engine._clock.now_s += 0.3
        self.engine.prefixes.tend()
        self.threads.run()
        self.engine.check()

    def killed(self, directory: Path, model: ToyModel | None = None, **settings: object) -> Desk:
        """Another engine; nothing that the first one had is saved first."""
        self.threads.writes.clear()
        return Desk(directory, model, **settings)

    @property
    def model(self) -> object:
        return self.engine.stats().models[0]

    @property
    def disk(self) -> object:
        return self.engine.stats().disk

    def close(self) -> None:
        self.engine.prefixes.stop()
        self.threads.run()
        self.engine.close()
        assert self.engine.prefixes._num_running == 0
        assert self.engine.memory.budget.committed_bytes == 0
