"""A real model goes on from a prefix that was on disk bit for bit as if it had computed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from tests.engine.offload.fake_threads import FakeThreads
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

PROMPT = [1, *range(300, 437)]
SAMPLING = SamplingParams(temperature=1.0, seed=5, num_logprobs=3)


class Engine:
    """A process's engine with the model and a disk."""

    def __init__(self, path: Path, directory: Path, kv_type: str = "f16", num_threads: int = 1) -> None:
        self.backend = CpuBackend(num_threads, kv_type=kv_type)
        self.core = EngineCore(
            self.backend,
            EngineSettings(
                kv_limit_bytes=64 << 20, kv_dir=str(directory), state_key=bytes(32), kv_disk_bytes=1 << 30
            ),
        )
        self.threads = FakeThreads()
        self.core.prefixes.use_threads(self.threads)
        self.core.attach_model("m", load_file(self.backend, path))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.prefixes.save_all(lambda: None)
        self.threads.run()
        self.core.close()
        self.backend.close()

    def say(self, prompt: list[int], **fields: object) -> list[StepOutput]:
        """The outputs of a request for 20 tokens."""
        outputs: list[StepOutput] = []
        self.core.submit(
            Request(id="r", model_id="m", prompt=prompt, sampling=SAMPLING, max_tokens=20, **fields)
        )
        self.threads.run()
        while self.core.has_work:
            outputs += self.core.step()
            self.core.check()
        return outputs


def tokens_and_logprobs(outputs: list[StepOutput]) -> tuple[list[int], list[object]]:
    """However many tokens a step brought."""
    return [token for o in outputs for token in o.tokens], [lp for o in outputs for lp in o.logprobs or []]


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0", "f32"])
def test_going_on_after_a_restart(smollm2_path: Path, tmp_path: Path, kv_type: str):
    with Engine(smollm2_path, tmp_path, kv_type) as engine:
        expected = engine.say(PROMPT)
        assert expected[-1].stats.cached_tokens == 0
    with Engine(smollm2_path, tmp_path, kv_type, num_threads=2) as engine:
        outputs = engine.say(PROMPT)
        assert outputs[-1].stats.cached_tokens == len(PROMPT) - 1
        assert tokens_and_logprobs(outputs) == tokens_and_logprobs(expected)
        other = [*PROMPT[:100], 7, 8, 9]
        branched = engine.say(other)
        assert branched[-1].stats.cached_tokens >= 100
    with Engine(smollm2_path, tmp_path / "empty", kv_type) as fresh:
        assert tokens_and_logprobs(fresh.say(other)) == tokens_and_logprobs(branched)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3"])
def test_of_windows_what_they_reach_comes_back(tmp_path: Path, architecture: str):
    path = write_tiny(tmp_path / "tiny.gguf", TINY[architecture], "Q8_0")
    prompt = [1, *(n % 200 for n in range(300))]
    with Engine(path, tmp_path / "kv") as engine:
        expected = engine.say(prompt)
        assert len(engine.core._models["m"].kv.groups) > 1
    with Engine(path, tmp_path / "kv") as engine:
        outputs = engine.say(prompt)
        assert outputs[-1].stats.cached_tokens == len(prompt) - 1
        assert tokens_and_logprobs(outputs) == tokens_and_logprobs(expected)
        engine.core.trim_kv()
        shorter = engine.say(prompt[:200])
    with Engine(path, tmp_path / "empty") as fresh:
        assert tokens_and_logprobs(fresh.say(prompt[:200])) == tokens_and_logprobs(shorter)


def test_kv_of_another_type_is_not_found(smollm2_path: Path, tmp_path: Path):
    with Engine(smollm2_path, tmp_path, "f16") as engine:
        engine.say(PROMPT)
    with Engine(smollm2_path, tmp_path, "q8_0") as engine:
        assert engine.say(PROMPT)[-1].stats.cached_tokens == 0
