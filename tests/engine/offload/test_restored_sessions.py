"""A real model continues a restored session bit for bit as one that was never interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from puna.kv.files.session_manifest import SavedSessionMismatch
from tests.engine.offload.fake_threads import PromptThreads
from tests.engine.offload.saved_sessions import load, save
from tests.forward import load_file

pytestmark = pytest.mark.native

PROMPT = [1, *range(300, 371)]
QUESTION = list(range(500, 505))
SAMPLING = SamplingParams(temperature=1.0, seed=5, num_logprobs=3)


class Engine:
    """A process's engine with the model."""

    def __init__(self, path: Path, directory: Path, kv_type: str, num_threads: int = 1) -> None:
        self.backend = CpuBackend(num_threads, kv_type=kv_type)
        settings = EngineSettings(kv_limit_bytes=64 << 20, state_key=bytes(32), sessions_dir=str(directory))
        self.core = EngineCore(self.backend, settings)
        self.core.sessions.use_threads(PromptThreads())
        self.core.attach_model("m", load_file(self.backend, path))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.close()
        self.backend.close()

    def say(self, prompt: list[int], **fields: object) -> list[StepOutput]:
        """The outputs of a request for 20 tokens."""
        outputs: list[StepOutput] = []
        self.core.submit(
            Request(id="r", model_id="m", prompt=prompt, sampling=SAMPLING, max_tokens=20, **fields)
        )
        while self.core.has_work:
            outputs += self.core.step()
            self.core.check()
        return outputs


def tokens_and_logprobs(outputs: list[StepOutput]) -> list[object]:
    return [(output.tokens, output.logprobs) for output in outputs]


def tokens_of(outputs: list[StepOutput]) -> list[int]:
    return [token for output in outputs for token in output.tokens]


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_going_on_after_a_restart(smollm2_path: Path, tmp_path: Path, kv_type: str):
    with Engine(smollm2_path, tmp_path, kv_type) as engine:
        history = PROMPT + tokens_of(engine.say(PROMPT, session="a"))
        save(engine.core.sessions, "m", "a")
    with Engine(smollm2_path, tmp_path, kv_type) as fresh:
        expected = fresh.say(history + QUESTION)
        assert expected[-1].stats.cached_tokens == 0
    with Engine(smollm2_path, tmp_path, kv_type, num_threads=2) as restored:
        load(restored.core.sessions, "m", "a")
        outputs = restored.say(history + QUESTION)
    assert outputs[-1].stats.cached_tokens == len(history) - 1
    assert tokens_and_logprobs(outputs) == tokens_and_logprobs(expected)


def test_kv_of_another_type_is_refused(smollm2_path: Path, tmp_path: Path):
    with Engine(smollm2_path, tmp_path, "f16") as engine:
        engine.say(PROMPT, session="a")
        save(engine.core.sessions, "m", "a")
    with (
        Engine(smollm2_path, tmp_path, "q8_0") as engine,
        pytest.raises(SavedSessionMismatch, match="another KV cache type: f16, not q8_0"),
    ):
        load(engine.core.sessions, "m", "a")
