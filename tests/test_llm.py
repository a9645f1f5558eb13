"""The library face: text in and text out in this process, and step by step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import puna
from puna.backends.base import ModelLoadError
from puna.chat.errors import PromptError
from puna.chat.messages import Message
from puna.chat.templates.template import ChatTemplate
from puna.gguf import GgufError
from puna.registry import ModelName, ModelNotFound, Store
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.sources.gemma import GEMMA_LAYERS
from tests.descriptions import TINY_WEIGHTS
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

GREEDY = puna.SamplingParams(temperature=0)
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[puna.LLM]:
    with puna.LLM(smollm2_path, num_threads=2, kv_limit_bytes=64 << 20, context_length=1024) as llm:
        yield llm


def test_importing_the_package_does_not_import_the_engine():
    code = "import sys, puna; print(sorted({'numpy', 'puna._native', 'puna.engine'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        puna.nonsense  # noqa: B018


def test_generate_continues_the_prompt(llm: puna.LLM):
    (completion,) = llm.generate(PROMPT, max_tokens=8, sampling=GREEDY)
    assert "Paris" in completion.text
    assert completion.text == llm.engine.tokenizer.decode(completion.tokens)
    assert completion.finish_reason == "length"
    assert (completion.stats.prompt_tokens, completion.stats.generated_tokens) == (5, 8)


def test_embed_gives_alike_texts_alike_vectors(llm: puna.LLM):
    texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Stock prices fell sharply today."]
    cat, other_cat, stocks = llm.embed(texts)
    assert float(cat @ other_cat) > float(cat @ stocks)
    assert np.allclose(np.linalg.norm([cat, other_cat, stocks], axis=1), 1)
    assert llm.embed("x", normalized=False).shape == (1, llm.engine.info.hidden_size)
    assert llm.embed([]).shape == (0, llm.engine.info.hidden_size)
    with pytest.raises(PromptError, match="exceeds the context length"):
        llm.embed("x " * 3000, truncate=False)


def test_prompts_together_give_what_they_give_alone(llm: puna.LLM):
    prompts = [f"{PROMPT} a city. {i} times {i} is" for i in range(8)]
    together = llm.generate(prompts, max_tokens=12, sampling=GREEDY)
    alone = [llm.generate(prompt, max_tokens=12, sampling=GREEDY)[0] for prompt in prompts]
    assert [c.tokens for c in together] == [c.tokens for c in alone]


def test_a_stream_gives_the_same_text_in_pieces(llm: puna.LLM):
    (whole,) = llm.generate(PROMPT, max_tokens=20, sampling=GREEDY)
    chunks = list(llm.stream(PROMPT, max_tokens=20, sampling=GREEDY))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert len(chunks) > 10
    assert [chunk.completion is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_streams_can_be_interleaved_and_left(llm: puna.LLM):
    left = llm.stream(PROMPT, sampling=GREEDY)
    streams = [llm.stream(PROMPT, max_tokens=10, sampling=GREEDY) for _ in range(2)]
    texts = [next(left).text, *(next(stream).text for stream in streams)]
    left.close()
    first, second = (text + "".join(c.text for c in s) for text, s in zip(texts[1:], streams, strict=True))
    assert first == second == llm.generate(PROMPT, max_tokens=10, sampling=GREEDY)[0].text
    assert not llm.engine.has_work


def test_a_stop_string_ends_the_text_before_it(llm: puna.LLM):
    (whole,) = llm.generate(PROMPT, max_tokens=30, sampling=GREEDY)
    stop = whole.text[20:26]
    (stopped,) = llm.generate(PROMPT, max_tokens=30, sampling=GREEDY, stop=[stop, "never"])
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert stopped.finish_reason == "stop"
    assert len(stopped.tokens) < 30


@pytest.mark.parametrize("as_message", [False, True])
def test_chat_answers_and_stops_by_itself(llm: puna.LLM, as_message: bool):
    turn = {"role": "user", "content": "What is 2+2?"}
    messages = [Message(**turn) if as_message else turn]
    reply = llm.chat(messages, max_tokens=100, sampling=GREEDY)
    assert "4" in reply.text
    assert "<|im_end|>" not in reply.text
    assert reply.finish_reason == "stop"
    assert "".join(c.text for c in llm.stream_chat(messages, max_tokens=100, sampling=GREEDY)) == reply.text


def test_a_grammar_decides_what_the_answer_may_be(llm: puna.LLM):
    grammar = 'start: %json {"enum": ["Lyon", "Paris is the capital of France"]}'
    [completion] = llm.generate(PROMPT, sampling=GREEDY, grammar=grammar)
    assert completion.text in ('"Lyon"', '"Paris is the capital of France"')
    assert completion.finish_reason == "stop"


def test_logprobs_are_given_on_demand(llm: puna.LLM):
    sampling = puna.SamplingParams(temperature=0, num_logprobs=2)
    (completion,) = llm.generate(PROMPT, max_tokens=3, sampling=sampling)
    assert [lp.token for lp in completion.logprobs or []] == completion.tokens
    assert llm.generate(PROMPT, max_tokens=1)[0].logprobs is None


def test_a_prompt_too_long_is_refused_and_the_next_goes_on(llm: puna.LLM):
    with pytest.raises(puna.GenerationError, match="more than the context of 1024"):
        llm.generate(["hello " * 2000, PROMPT], max_tokens=3)
    assert len(llm.generate(PROMPT, max_tokens=3, sampling=GREEDY)[0].tokens) == 3


def finished(engine: puna.Engine, *args, **options) -> puna.Completion:
    seq_id = engine.add_request(*args, sampling=GREEDY, **options)
    while (completion := engine.completion(seq_id)) is None:
        engine.step()
    engine.remove(seq_id)
    return completion


def test_a_shifting_context_has_no_end(smollm2_path: Path):
    with puna.Engine(smollm2_path, num_threads=2, kv_limit_bytes=64 << 20, context_length=32) as engine:
        stops = finished(engine, "Once upon a time", max_new_tokens=100)
        assert (stops.finish_reason, len(stops.tokens)) == ("length", 32 - stops.stats.prompt_tokens)
        goes_on = finished(engine, "Once upon a time", max_new_tokens=100, shift=True, num_keep=4)
        assert (goes_on.finish_reason, len(goes_on.tokens)) == ("length", 100)
        assert goes_on.tokens[: len(stops.tokens)] == stops.tokens


def test_prompts_share_what_was_computed_only_under_the_same_salt(smollm2_path: Path):
    with puna.Engine(smollm2_path, num_threads=2, kv_limit_bytes=64 << 20) as engine:
        prompt = PROMPT * 10
        salts = ["", "", "tenant", "tenant"]
        cached = [
            finished(engine, prompt, max_new_tokens=2, cache_salt=salt).stats.cached_tokens for salt in salts
        ]
        num_prompt = len(engine.tokenizer.encode(prompt))
        assert cached == [0, num_prompt - 1, 0, num_prompt - 1]


def test_a_higher_priority_goes_first(smollm2_path: Path):
    with puna.Engine(smollm2_path, num_threads=2, kv_limit_bytes=64 << 20) as engine:
        late = engine.add_request(PROMPT * 100, max_new_tokens=1, sampling=GREEDY)
        early = engine.add_request(PROMPT * 101, max_new_tokens=1, sampling=GREEDY, priority=1)
        while engine.completion(early) is None:
            assert engine.completion(late) is None
            engine.step()


def test_requests_join_a_running_engine(smollm2_path: Path):
    with puna.Engine(smollm2_path, num_threads=2) as engine:
        first = engine.add_request(PROMPT, max_new_tokens=12, sampling=GREEDY)
        steps = [engine.step() for _ in range(4)]
        second = engine.add_request(engine.tokenizer.encode(PROMPT), max_new_tokens=12, sampling=GREEDY)
        while engine.has_work:
            steps.append(engine.step())
        tokens: dict[int, list[int]] = {first: [], second: []}
        for seq_ids, next_token_ids in steps:
            for seq_id, token in zip(seq_ids, next_token_ids, strict=True):
                tokens[seq_id].append(token)
        assert tokens[first] == tokens[second]
        assert engine.get_sequence_text(second) == engine.tokenizer.decode(tokens[first])
        assert max(len(seq_ids) for seq_ids, _ in steps) == 2
        completion = engine.completion(first)
        assert completion is not None
        assert completion.finish_reason == "length"
        engine.remove(first)
        with pytest.raises(KeyError):
            engine.get_sequence_text(first)


def test_a_sequence_removed_while_it_runs_is_gone(smollm2_path: Path):
    with puna.Engine(smollm2_path, num_threads=2) as engine:
        seq_id = engine.add_request(PROMPT, sampling=GREEDY)
        engine.step()
        engine.remove(seq_id)
        assert engine.step() == ([], [])
        assert not engine.has_work


def test_a_model_is_found_by_its_name_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    store = Store.default()
    digest = store.add_blob([write_tiny(tmp_path / "tiny.gguf", TINY["llama"]).read_bytes()])
    create_from_gguf(store, ModelName.parse("tiny:test"), digest, TINY_WEIGHTS, texts=GEMMA_LAYERS)
    with puna.LLM("tiny:test") as llm:
        assert len(llm.generate("the", max_tokens=2, sampling=GREEDY)[0].tokens) == 2
        assert llm.engine.chat_template.source == GEMMA_LAYERS["template"]
    with pytest.raises(ModelNotFound):
        puna.LLM("nobody:latest")


@pytest.mark.parametrize("source", [None, "{% nonsense %}"])
def test_a_model_without_a_usable_chat_template_can_still_generate(
    source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def for_tokenizer(*_: object, **__: object) -> ChatTemplate | None:
        return ChatTemplate(source, bos_token="", eos_token="") if source else None

    monkeypatch.setattr(ChatTemplate, "for_tokenizer", for_tokenizer)
    with puna.LLM(write_tiny(tmp_path / "tiny.gguf", TINY["llama"])) as llm:
        assert llm.generate("the", max_tokens=2, sampling=GREEDY)[0].tokens
        with pytest.raises(puna.GenerationError, match="no chat template"):
            llm.chat([{"role": "user", "content": "hello"}])


def test_bad_files_are_named(tmp_path: Path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"nonsense")
    with pytest.raises(GgufError, match=r"bad\.gguf"):
        puna.LLM(str(path))
    tiny = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    with pytest.raises(ModelLoadError, match="the limit is 100"):
        puna.LLM(tiny, kv_limit_bytes=100)
