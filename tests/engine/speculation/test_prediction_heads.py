"""A model's own prediction head drafts: it saves steps, changes no bit, and is left alone where it errs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from puna.backends.base import Batch
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.engine.request import RequestStats
from puna.kv import BLOCK_TOKENS
from tests.engine.toy import GREEDY as TOY_GREEDY
from tests.engine.toy import ToyClock, ToyModel, expected_tokens, run_all, toy_engine, toy_request
from tests.forward import load_file
from tests.heads import write_drafter, write_predicting
from tests.tiny import TINY

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0, num_logprobs=1)
DRAWN = SamplingParams(temperature=0.7, seed=5, repeat_penalty=1.1, num_logprobs=1)
MODELS = ["qwen35", "glm4moe", "deepseek2", "gemma4", "gemma4-small"]

DRAFTER = "drafter.gguf"


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of Gemma have a drafter beside them instead of a head."""
    path = tmp_path_factory.mktemp("model") / "right.gguf"
    is_gemma = request.param.startswith("gemma4")
    tiny = replace(TINY[request.param], attention_scale=0.3 if is_gemma else 1.0)
    write_predicting(path, tiny, "Q8_0")
    if is_gemma:
        write_drafter(path.with_name(DRAFTER), path, "Q8_0")
    return path


def with_clock(model: Any, step_s: float, draft_s: float) -> ToyClock:
    """A clock by which the model's steps take step_s, and a little for each token; a draft takes draft_s."""
    clock, step, predict = ToyClock(), model.step, model.predict

    def timed_step(batch: Batch, *others: Any) -> Any:
        clock.now_s += step_s + 0.001 * len(batch.tokens)
        return step(batch, *others)

    def timed_predict(batch: Batch, kv: Any, counts: list[int]) -> list[list[int]]:
        clock.now_s += draft_s * max(counts)
        return predict(batch, kv, counts)

    model.step, model.predict = timed_step, timed_predict
    return clock


class Engine:
    """A model whose head is mostly right, in memory for so many tokens and a few states."""

    def __init__(self, backend: CpuBackend, path: Path, num_tokens: int = 8000, **settings: Any) -> None:
        model = load_file(backend, path, drafter if (drafter := path.with_name(DRAFTER)).exists() else None)
        info = model.info
        limit = num_tokens // BLOCK_TOKENS * info.block_bytes + (2 + num_tokens // 80) * info.state_bytes
        assert info.predicts
        chosen = EngineSettings(kv_limit_bytes=limit, state_key=bytes(32), **settings)
        self.core = EngineCore(backend, chosen, with_clock(model, step_s=0.1, draft_s=0.002))
        self.core.attach_model("m", model)
        self.num_steps = 0
        self.stats: dict[str, RequestStats] = {}

    def run(self, *requests: Request, cancelled: dict[int, str] | None = None) -> dict[str, list[object]]:
        """(token, log-probability) of each; cancelled: which before which step."""
        for request in requests:
            self.core.submit(request)
        answers: dict[str, list[object]] = {r.id: [] for r in requests}
        while self.core.has_work:
            if (name := (cancelled or {}).get(self.num_steps)) is not None:
                self.core.cancel(name)
            self.num_steps += 1
            for output in self.core.step():
                assert output.error is None
                answers[output.request_id] += [(p.token, p.logprob) for p in output.logprobs or []]
                if output.stats is not None:
                    self.stats[output.request_id] = output.stats
            self.core.check()
        return answers

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.trim_kv()
        assert self.core.stats().models[0].used_kv_bytes == 0
        self.core.close()


def request(name: str, begin: int, num_prompt: int, max_tokens: int = 40, **fields: Any) -> Request:
    """Its prompt counts on from `begin`, but for something random in its midst."""
    tokens = [(begin + i) % 200 for i in range(num_prompt)]
    tokens[num_prompt // 2 :: 7] = np.random.default_rng(begin).integers(
        0, 200, len(tokens[num_prompt // 2 :: 7])
    )
    values = {"sampling": GREEDY, "boundaries": [num_prompt - 1], **fields}
    return Request(id=name, model_id="m", prompt=[int(t) for t in tokens], max_tokens=max_tokens, **values)


def without_drafts(backend: CpuBackend, path: Path, *requests: Request) -> dict[str, list[object]]:
    with Engine(backend, path) as engine:
        return engine.run(*[msgspec.structs.replace(r, num_draft=0) for r in requests])


def test_one_reply_takes_fewer_steps(backend: CpuBackend, path: Path):
    for one in (request("greedy", 7, 50), request("drawn", 9, 37, sampling=DRAWN)):
        expected = without_drafts(backend, path, one)
        with Engine(backend, path) as engine:
            assert engine.run(one) == expected
            stats = engine.stats[one.id]
            assert stats.accepted_tokens > 3
            assert engine.num_steps <= stats.generated_tokens - stats.accepted_tokens + 2  # for the prompt


def test_many_at_once_and_some_without(backend: CpuBackend, path: Path):
    requests = [
        request(str(i), 11 * i, 20 + 9 * i, num_draft=(None, 0, 2)[i % 3], sampling=(GREEDY, DRAWN)[i % 2])
        for i in range(9)
    ]
    expected = without_drafts(backend, path, *requests)
    with Engine(backend, path) as engine:
        assert engine.run(*requests) == expected
        drafted = {r.id: engine.stats[r.id].drafted_tokens for r in requests}
        assert not any(drafted[r.id] for r in requests if r.num_draft == 0)
        assert sum(drafted.values()) > 30


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_in_whatever_order(backend: CpuBackend, path: Path, seed: int):
    """Prompts that begin alike, chunks, too little memory, cancelled requests, contexts that shift."""
    rng = np.random.default_rng(seed)
    requests = []
    for i in range(12):
        fields: dict[str, Any] = {"sampling": GREEDY if rng.random() < 0.6 else DRAWN}
        fields["priority"] = int(rng.integers(2))
        fields["num_draft"] = [None, None, 3, 0][rng.integers(4)]
        if rng.random() < 0.3:
            fields |= {"shift": True, "context_length": 64, "num_keep": 5}
        begin, size = 40 * int(rng.integers(3)), int(rng.integers(2, 60))
        requests.append(request(str(i), begin, size, int(rng.integers(1, 70)), **fields))
    # What a shift leaves hangs on where it came from, not on drafts: each request alone says what must come.
    expected: dict[str, list[object]] = {}
    for one in requests:
        expected |= without_drafts(backend, path, one)
    cancelled = {int(rng.integers(5, 60)): str(rng.integers(12)) for _ in range(3)}
    with Engine(backend, path, 400, prefill_tokens=24, min_prefill_tokens=3) as engine:
        first = engine.run(*requests[:6], cancelled=cancelled)
        rest = engine.run(*requests[6:])
    for name, answer in (first | rest).items():
        if name in cancelled.values():
            assert answer == expected[name][: len(answer)]
        else:
            assert answer == expected[name]


def test_a_prefix_that_was_computed_without_it(backend: CpuBackend, path: Path):
    one = request("r", 3, 70)
    with Engine(backend, path) as engine:
        expected = engine.run(msgspec.structs.replace(one, id="first", num_draft=0))["first"]
        assert engine.run(one)["r"] == expected
        assert engine.stats["r"].cached_tokens == 69


class Headed:
    """A toy engine whose model's head is mostly right; a draft of it takes draft_s."""

    def __init__(self, draft_s: float, *, is_habitual: bool = True) -> None:
        self.model = ToyModel(is_habitual=is_habitual, predicts=True)
        self.model.clock = with_clock(self.model, 0.05, draft_s)
        self.engine = toy_engine(self.model)

    def run(self, name: str, count: int = 100) -> int:
        """Steps that it takes."""
        before = len(self.model.steps)
        self.engine.submit(toy_request(name, [70, 71, 72], count, sampling=TOY_GREEDY, num_draft=4))
        tokens = run_all(self.engine).tokens[name]
        assert tokens == expected_tokens([70, 71, 72], count, is_habitual=self.model.is_habitual)
        return len(self.model.steps) - before


def test_drafts_that_cost_little_are_made():
    assert Headed(draft_s=0.005).run("r") < 60


def test_drafts_that_cost_more_than_they_save_are_not():
    headed = Headed(draft_s=0.2)
    headed.run("first", 300)
    headed.model.num_predicted = 0
    headed.run("second", 300)
    assert headed.model.num_predicted <= 2


def test_a_head_that_errs_is_tried_again_ever_more_rarely():
    headed = Headed(draft_s=0.005, is_habitual=False)
    tries = []
    for i in range(60):
        headed.model.num_predicted = 0
        headed.run(str(i), 40)
        if headed.model.num_predicted:
            tries.append(i)
    assert 2 <= len(tries) < 12
    assert np.diff(tries).max() >= 16
