"""Encoders' texts run whole, many to a step, keep nothing, and have the same bits in any company."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from puna.backends.base import ModelLoadError, UnsupportedModelFile
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request
from tests.engine.toy import Results, run_all
from tests.forward import load_file
from tests.tiny import ENCODERS, RANKERS, TINY, Tiny, write_tiny

pytestmark = pytest.mark.native

LENGTHS = (1, 2, 7, 33, 90, 200, 90)
PROMPTS = [[i * (7 + n) % 260 for i in range(n)] for n in LENGTHS]


def engine_with(backend: CpuBackend, models: dict[str, Path], **fields: object) -> EngineCore:
    engine = EngineCore(backend, EngineSettings(kv_limit_bytes=1 << 24, **fields))
    for name, path in models.items():
        engine.attach_model(name, load_file(backend, path))
    return engine


def request(name: str, prompt: list[int], **fields: object) -> Request:
    return Request(id=name, model_id="e", prompt=prompt, **fields)


def embeddings(results: Results) -> dict[str, bytes]:
    assert all(last.error is None for last in results.last.values())
    return {name: last.embedding for name, last in results.last.items() if last.embedding}


@pytest.mark.parametrize("weight_type", ["F32", "Q8_0"])
@pytest.mark.parametrize("name", ["bert", "bert-cls", "modern-bert", "nomic-bert-moe", "t5encoder"])
def test_the_same_bits_in_any_company(name: str, weight_type: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "e.gguf", ENCODERS[name], weight_type)
    other = write_tiny(tmp_path / "d.gguf", TINY["llama"])
    texts = [request(str(i), prompt, pooling=_pooling(ENCODERS[name])) for i, prompt in enumerate(PROMPTS)]
    alone: dict[str, bytes] = {}
    one_thread = CpuBackend(num_threads=1)
    engine = engine_with(one_thread, {"e": path})
    for text in texts:
        engine.submit(text)
        alone |= embeddings(run_all(engine))
    engine.close()
    one_thread.close()
    assert alone["4"] == alone["6"] != alone["5"]
    backend = CpuBackend(num_threads=2)
    for fields in ({}, {"prefill_tokens": 64}, {"cache_policy": "slots", "max_running": 3}):
        engine = engine_with(backend, {"e": path, "d": other}, **fields)
        engine.submit(Request(id="reply", model_id="d", prompt=PROMPTS[3], max_tokens=10))
        for text in reversed(texts):
            engine.submit(text)
        results = run_all(engine)
        assert len(results.tokens["reply"]) == 10
        assert embeddings(results) == alone
        engine.close()
    engine = engine_with(backend, {"e": path})
    for text in texts:  # each in a step of its own, by two threads; one of them has a single token
        engine.submit(text)
        assert embeddings(run_all(engine)) == {text.id: alone[text.id]}
    engine.close()
    backend.close()


def test_short_texts_share_steps_and_keep_nothing(tmp_path: Path) -> None:
    backend = CpuBackend(num_threads=2)
    engine = engine_with(backend, {"e": write_tiny(tmp_path / "e.gguf", ENCODERS["bert"])}, text_step_s=60.0)
    for i in range(50):
        engine.submit(request(str(i), PROMPTS[2], pooling="mean"))
    engine.step()
    finished = 50 - engine.stats().models[0].num_running - engine.stats().models[0].num_waiting
    assert finished == 256 // len(PROMPTS[2])
    assert engine.stats().models[0].used_kv_bytes == engine.stats().models[0].cached_kv_bytes == 0
    run_all(engine)
    engine.check()
    engine.close()
    backend.close()


@pytest.mark.parametrize(
    ("tiny", "fields", "error"),
    [
        (ENCODERS["bert"], {}, "does not reply"),
        (ENCODERS["bert"], {"pooling": "last"}, "of type 'mean'"),
        (ENCODERS["bert"], {"pooling": "rank"}, "of type 'mean'"),
        (RANKERS["bert"], {"pooling": "mean"}, "ranks texts"),
        (RANKERS["qwen3"], {"pooling": "last"}, "ranks texts"),
        (TINY["qwen3"], {"pooling": "rank"}, "of type 'last'"),
    ],
)
def test_what_a_model_is_not_for(tiny: Tiny, fields: dict[str, object], error: str, tmp_path: Path) -> None:
    backend = CpuBackend(num_threads=1)
    engine = engine_with(backend, {"e": write_tiny(tmp_path / "e.gguf", tiny)})
    engine.submit(request("it", PROMPTS[3], **fields))
    last = run_all(engine).last["it"]
    assert last.error is not None
    assert error in last.error
    engine.close()
    backend.close()


@pytest.mark.parametrize("name", RANKERS)
def test_a_ranking_model_without_scores_is_refused_by_every_engine(name: str, tmp_path: Path) -> None:
    """As converters leave them that do not know it; llama.cpp would give hidden states for scores."""

    def without_scores(tiny: Tiny, vocab: int) -> dict[str, tuple[int, ...]]:
        tensors = RANKERS[name].model_tensors(tiny, vocab)
        return {name: shape for name, shape in tensors.items() if not name.startswith("cls.")}

    path = write_tiny(tmp_path / "r.gguf", replace(RANKERS[name], model_tensors=without_scores))
    backend = CpuBackend(num_threads=1)
    with pytest.raises(ModelLoadError, match=r"cls\.output\.weight (is|are) missing") as refused:
        load_file(backend, path)
    assert not isinstance(refused.value, UnsupportedModelFile)
    backend.close()


def test_sleep_and_a_full_memory_harm_no_encoder(tmp_path: Path) -> None:
    """It takes no KV memory, so it need not wait for any."""
    backend = CpuBackend(num_threads=1)
    paths = {
        "e": write_tiny(tmp_path / "e.gguf", ENCODERS["bert"]),
        "d": write_tiny(tmp_path / "d.gguf", TINY["llama"]),
    }
    engine = engine_with(backend, paths)
    engine.set_limits(kv_limit_bytes=4 * load_file(backend, paths["d"]).info.block_bytes)
    for i in range(3):
        engine.submit(Request(id=f"d{i}", model_id="d", prompt=PROMPTS[3], max_tokens=20))
    engine.submit(request("first", PROMPTS[4], pooling="mean"))
    first = run_all(engine)
    engine.sleep_model("e")
    engine.submit(request("second", PROMPTS[4], pooling="mean"))
    second = run_all(engine)
    assert first.last["first"].embedding == second.last["second"].embedding != b""
    engine.check()
    engine.close()
    backend.close()


def _pooling(tiny: Tiny) -> str:
    return {1: "mean", 2: "cls"}[tiny.metadata["pooling_type"]]
