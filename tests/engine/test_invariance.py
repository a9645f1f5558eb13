"""A model's answer, down to the bits of its log-probabilities, depends on the request alone.

Not on who else is there, what the cache holds, how often it was preempted, what was drafted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puna.backends.base import ModelSource
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.engine.observation.metrics import ModelMetrics
from puna.gguf import GgufFile
from puna.kv import BLOCK_TOKENS
from puna.tokenizer import Tokenizer, load_tokenizer
from tests.adapters import write_adapter
from tests.engine.offload.fake_threads import PromptThreads
from tests.engine.offload.saved_sessions import load, save
from tests.forward import load_file
from tests.heads import write_predicting
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

NUM_TOKENS = 32
GREEDY = SamplingParams(temperature=0, num_logprobs=2)
DRAWN = SamplingParams(temperature=1.0, seed=11, repeat_penalty=1.1, num_logprobs=2)

SENTENCE = "The baker opened the shop at six and swept the floor before the first customers came in."
TEXTS = [
    "Once upon a time",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    f"Text: {SENTENCE}\nCopy: {SENTENCE}\n\nText: Rain fell on the harbour all night.\nCopy:",
    " ".join(f"{i} times {i} is {i * i}." for i in range(40)),
]
MODELS = ["smollm2", "gemma2", "gemma4-small", "llama4", "mixtral", "gpt-oss", "deepseek2", "jais"]
RECURRENT = ["qwen35", "lfm2", "granitehybrid-experts", "falcon-h1", "mamba2"]
CHUNKED = replace(TINY["llama4"], metadata=TINY["llama4"].metadata | {"attention.chunk_size": 64})
ADAPTERS = ["first", "second"]
Answer = list[tuple[int, float, list[tuple[int, float]]]]
"""(token, log-probability, the two most likely) one after the other."""


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


@pytest.fixture(scope="module", params=[*MODELS, *RECURRENT])
def path(
    request: pytest.FixtureRequest, smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """SmolLM2, or a random model: with windows or chunks shorter than the prompts, with experts, with
    latents, without rotation, with recurrent layers beside attention or alone, with a prediction head that is
    often right. Two adapters lie beside it.
    """
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    if request.param == "smollm2":
        path.symlink_to(smollm2_path)
    else:
        tiny = CHUNKED if request.param == "llama4" else TINY[request.param]
        write = write_predicting if "nextn_predict_layers" in tiny.metadata else write_tiny
        write(path, tiny, "Q8_0")
    for i, name in enumerate(ADAPTERS):
        write_adapter(path.parent / name, path, rank=3 + 16 * i, weight_type=("F32", "F16")[i], seed=i)
    return path


@pytest.fixture(scope="module")
def has_state(backend: CpuBackend, path: Path) -> bool:
    model = load_file(backend, path)
    model.close()
    return model.info.state_bytes > 0


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    with GgufFile(path) as file:
        return load_tokenizer(file.metadata)


class Engine:
    """A model with memory for so many tokens, and a few states. Time goes on steadily: drafts seem to pay."""

    def __init__(self, backend: CpuBackend, path: Path, max_tokens: int = 8000, **settings: Any) -> None:
        model = load_file(backend, path)
        num_blocks, num_states = max_tokens // BLOCK_TOKENS, 2 + max_tokens // 80
        limit_bytes = num_blocks * model.info.block_bytes + num_states * model.info.state_bytes
        clock = itertools.count(0, 0.001)
        chosen = EngineSettings(kv_limit_bytes=limit_bytes, state_key=bytes(32), **settings)
        self.core = EngineCore(backend, chosen, lambda: next(clock))
        self.core.attach_model("m", model)
        for name in ADAPTERS:
            with ModelSource.open(path.parent / name) as source:
                self.core.adapters.load("m", name, source)
        self.core.sessions.use_threads(PromptThreads())

    def run(
        self, requests: Sequence[Request], later: Mapping[int, Request] | None = None
    ) -> dict[str, Answer]:
        """later: what is submitted before which step."""
        later = later or {}
        for request in requests:
            self.core.submit(request)
        answers: dict[str, Answer] = {request.id: [] for request in [*requests, *later.values()]}
        step = 0
        while self.core.has_work:
            if step in later:
                self.core.submit(later[step])
            step += 1
            for output in self.core.step():
                assert output.error is None
                answers[output.request_id] += [(p.token, p.logprob, p.top) for p in output.logprobs or []]
            self.core.check()
        return answers

    @property
    def metrics(self) -> ModelMetrics:
        return self.core.stats().metrics["m"]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.close()


def request(request_id: str, prompt: list[int], **fields: Any) -> Request:
    """Its last token asks for the reply."""
    values = {"sampling": GREEDY, "max_tokens": NUM_TOKENS, "boundaries": [len(prompt) - 1], **fields}
    return Request(id=request_id, model_id="m", prompt=prompt, **values)


def renamed(requests: Sequence[Request], prefix: str, **fields: Any) -> list[Request]:
    return [msgspec.structs.replace(r, id=f"{prefix}{r.id}", **fields) for r in requests]


def continued(one: Request, answer: Answer, count: int) -> Request:
    """For what comes behind the first `count` tokens of a greedy answer."""
    tokens = [token for token, _, _ in answer[:count]]
    return msgspec.structs.replace(one, prompt=one.prompt + tokens, max_tokens=len(answer) - count)


@pytest.fixture(scope="module")
def requests(tokenizer: Tokenizer, has_state: bool) -> list[Request]:
    """Greedy and drawn, short and long, with adapters and without, and some that shift their context several
    times, if that can be.
    """
    prompts = [tokenizer.encode_prompt(text) for text in TEXTS]
    found = [request(f"greedy{i}", prompt) for i, prompt in enumerate(prompts)]
    found += [request(f"drawn{i}", prompt, sampling=DRAWN) for i, prompt in enumerate(prompts[:2])]
    found += [request(name, prompts[1 + i], adapter=name) for i, name in enumerate(ADAPTERS)]
    if has_state:
        return found
    shift = {"shift": True, "context_length": 48, "num_keep": 5, "max_tokens": 90}
    found.append(request("shifted", prompts[1], **shift))
    found.append(request("shifted drawn", prompts[0], sampling=DRAWN, adapter="first", **shift))
    return found


@pytest.fixture(scope="module")
def alone(backend: CpuBackend, path: Path, requests: list[Request]) -> dict[str, Answer]:
    """Without a cache, without drafts, one after the other."""
    answers = {}
    with Engine(backend, path) as engine:
        for plain in renamed(requests, "", cache_prompt=False, num_draft=0):
            answers |= engine.run([plain])
            engine.core.trim_kv()
        assert engine.metrics.cached_tokens == engine.metrics.drafted_tokens == 0
    assert all(len(answers[r.id]) == r.max_tokens for r in requests)
    assert answers["first"] != answers["greedy1"]
    assert answers["second"] != answers["greedy2"]
    return answers


def without_prefix(answers: dict[str, Answer], prefix: str) -> dict[str, Answer]:
    return {name.removeprefix(prefix): a for name, a in answers.items() if name.startswith(prefix)}


def test_among_32_others(backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]):
    others = renamed((requests * 6)[:32], "", max_tokens=16)
    others = [
        msgspec.structs.replace(r, id=f"other{i}", prompt=r.prompt[i:] or [i], boundaries=[])
        for i, r in enumerate(others)
    ]
    with Engine(backend, path) as engine:
        answers = engine.run([*others[:16], *requests, *others[16:]])
        assert len(others) == 32
    assert {name: answers[name] for name in alone} == alone


@pytest.mark.parametrize("sizes", [(7, 3), (100, 33)])
def test_in_chunks(backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer], sizes):
    settings = {"prefill_tokens": sizes[0], "min_prefill_tokens": sizes[1], "max_batch": 3}
    with Engine(backend, path, **settings) as engine:
        assert engine.run(requests) == alone


def test_found_in_the_cache(
    backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]
):
    unshifted = [r for r in requests if not r.shift]  # a shift may change blocks in place
    with Engine(backend, path) as engine:
        engine.run(unshifted)
        before = engine.metrics.cached_tokens
        again = engine.run(renamed(unshifted, "again "))
        assert engine.metrics.cached_tokens - before == sum(len(r.prompt) - 1 for r in unshifted)
    assert without_prefix(again, "again ") == {r.id: alone[r.id] for r in unshifted}


def test_continued_within_a_block(
    backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]
):
    """What comes first shares a part of each prompt, and goes on differently."""
    with Engine(backend, path) as engine:
        cut = [max(len(r.prompt) - 3, 1) for r in requests]
        cut = [n - (n % BLOCK_TOKENS == 0) for n in cut]
        first = [
            msgspec.structs.replace(r, prompt=[*r.prompt[:n], 7, 8], boundaries=[n])
            for r, n in zip(requests, cut, strict=True)
        ]
        engine.run(renamed(first, "first ", max_tokens=30))
        before = engine.metrics.cached_tokens
        assert engine.run(requests) == alone
        assert engine.metrics.cached_tokens - before >= sum(cut)


def test_behind_what_was_generated(
    backend: CpuBackend,
    path: Path,
    has_state: bool,
    requests: list[Request],
    alone: dict[str, Answer],
):
    """A prompt that repeats prompt and answer is found in the cache, whoever computed it in which steps; of a
    state, what was before the answer.
    """
    with Engine(backend, path) as engine:
        unshifted = [r for r in requests if not r.shift]  # a shift may change blocks in place
        engine.run(unshifted)
        for one in (r for r in unshifted if r.sampling is GREEDY):
            later = continued(one, alone[one.id], 21)
            before = engine.metrics.cached_tokens
            assert engine.run([later])[one.id] == alone[one.id][21:]
            found = one.prompt if has_state else later.prompt
            assert engine.metrics.cached_tokens - before == len(found) - 1


def test_in_slots(backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]):
    """Two, which requests take turns in; each goes on with what another has left, where it can."""
    with Engine(backend, path, cache_policy="slots", max_running=2) as engine:
        assert engine.run(requests) == alone
        for one in (r for r in requests if r.sampling is GREEDY and not r.shift):
            engine.run([msgspec.structs.replace(one, max_tokens=21)])
            before = engine.metrics.cached_tokens
            assert engine.run([continued(one, alone[one.id], 21)])[one.id] == alone[one.id][21:]
            assert engine.metrics.cached_tokens - before >= len(one.prompt)


def test_preempted_and_resumed(
    backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]
):
    """By each other and by urgent requests that take all memory; some of them before, some after shifts."""
    # Without drafts, with which some are done before anybody is urgent.
    small = [msgspec.structs.replace(r, num_draft=0) for r in requests if len(r.prompt) < 100]
    urgent = {
        when: request(f"urgent{when}", [when] * 100, priority=5, max_tokens=4)
        for when in (9, 40, 70, 95, 120, 145, 170)
    }
    with Engine(backend, path, 10 * BLOCK_TOKENS) as engine:
        answers = engine.run(small, urgent)
        assert engine.metrics.num_preemptions >= 3
        num_shifting = sum(r.shift for r in small)
        assert not num_shifting or engine.metrics.num_shifts > num_shifting * 3, "no shift was repeated"
    assert {r.id: answers[r.id] for r in small} == {r.id: alone[r.id] for r in small}


def test_restored_from_a_saved_session(
    backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer], tmp_path: Path
):
    """Twelve tokens of each answer in one engine, the others in another that has read the session's files."""
    greedy = [r for r in requests if r.sampling is GREEDY and not r.shift]
    with Engine(backend, path, sessions_dir=str(tmp_path)) as engine:
        engine.run([msgspec.structs.replace(r, max_tokens=12, session=r.id) for r in greedy])
        for one in greedy:
            save(engine.core.sessions, "m", one.id)
    with Engine(backend, path, sessions_dir=str(tmp_path)) as engine:
        for one in greedy:
            load(engine.core.sessions, "m", one.id)
        rest = [continued(one, alone[one.id], 12) for one in greedy]
        assert engine.run(rest) == {one.id: alone[one.id][12:] for one in greedy}
        assert engine.metrics.cached_tokens == sum(len(one.prompt) - 1 for one in rest)


def test_drafted(backend: CpuBackend, path: Path, requests: list[Request], alone: dict[str, Answer]):
    with Engine(backend, path) as engine:
        for one in requests:  # one by one: several at once make drafts cost more
            assert engine.run([one])[one.id] == alone[one.id]
        assert engine.metrics.drafted_tokens > engine.metrics.accepted_tokens > 20
        assert without_prefix(engine.run(renamed(requests, "together ")), "together ") == alone


def test_at_any_number_of_threads(
    path: Path, backend: CpuBackend, requests: list[Request], alone: dict[str, Answer]
):
    with Engine(backend, path) as engine:
        assert engine.run([msgspec.structs.replace(r, num_threads=1) for r in requests]) == alone
