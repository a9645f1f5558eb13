"""Vocabularies are prepared for llguidance, and grammars compiled, by its C interface."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from puna._native import GrammarError, Llguidance, NativeError, ReplyGrammar, compute_masks
from puna.engine.grammars.compiling import CompiledGrammar, compile_grammar
from puna.engine.grammars.limits import REPLY_S, TOKEN_S
from puna.engine.grammars.slices import SLICES
from puna.engine.grammars.vocabulary import grammar_tokenizer
from puna.tokenizer import Tokenizer, build_vocabulary, load_tokenizer
from tests.tokenizer.vocabularies import all_pairs_bpe, character_pairs, sentencepiece

pytestmark = pytest.mark.native

JSON = """%llguidance {}
start: %json {"type": "object", "properties": {"name": {"type": "string"}, "at": {"type": "integer"}},
  "required": ["name", "at"], "additionalProperties": false}"""


def reply_to(tokenizer: Tokenizer, grammar: str) -> ReplyGrammar:
    compiled = compile_grammar(grammar_tokenizer(tokenizer), grammar)
    assert isinstance(compiled, CompiledGrammar), compiled
    return ReplyGrammar(compiled, reply_s=REPLY_S, token_s=TOKEN_S)


class Wrapped:
    """The same vocabulary for the Python interface."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self.eos_token_id = min(tokenizer.end_of_generation)
        self.tokens = [tokenizer.token_bytes(token) for token in ids]
        self.special_token_ids = [token for token in ids if tokenizer.is_special(token)]
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode_within(text.decode())


def test_text_that_a_vocabulary_reads_as_another() -> None:
    tokenizer = Tokenizer.from_blob(build_vocabulary(sentencepiece()))
    text = "the▁world"
    assert tokenizer.decode(tokenizer.encode_within(text)) == "the world"
    reply = reply_to(tokenizer, f'%llguidance {{}}\nstart: "{text}" /[0-9]/')
    forced = reply.forced()
    assert b"".join(map(tokenizer.token_bytes, forced)) == text.encode()
    assert reply.num_admitted(forced) == len(forced)
    assert compute_masks([reply], [forced])[0].only == forced[0]


@pytest.mark.parametrize(
    "metadata",
    [all_pairs_bpe("gpt-2"), sentencepiece(), character_pairs("gemma4")],
    ids=["bpe", "sentencepiece", "gemma4"],
)
def test_masks_are_those_of_the_python_interface(metadata: dict[str, object]) -> None:
    tokenizer = load_tokenizer(metadata)
    ends = sorted(tokenizer.end_of_generation)
    wrapped = TokenizerWrapper(Wrapped(tokenizer))
    matcher = LLMatcher(LLTokenizer(wrapped, eos_token=ends, slices=list(SLICES)), JSON)
    reply = reply_to(tokenizer, JSON)
    tokens = tokenizer.encode_within('{"name": "the aé\\n1", "at": -12}')
    masks = [list(map(mask.allows, range(tokenizer.vocab_size))) for mask in compute_masks([reply], [tokens])]
    for token, allowed in zip([*tokens, None], masks, strict=True):
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        assert np.array_equal(allowed, bits[: tokenizer.vocab_size])
        assert reply.forced() == matcher.compute_ff_tokens()
        if token is not None:
            reply.accept([token])
            assert matcher.consume_tokens([token])
    assert masks[-1] == [token in ends for token in range(tokenizer.vocab_size)]


def test_other_threads_run_while_a_vocabulary_is_prepared() -> None:
    """Nobody is made to give the interpreter's lock away: it is only given away by those that need it not."""
    tokenizer, state = load_tokenizer(all_pairs_bpe("gpt-2")), SimpleNamespace(has_begun=False, is_done=False)

    def prepare() -> None:
        state.has_begun = True
        grammar_tokenizer(tokenizer)
        state.is_done = True

    usual = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        thread = threading.Thread(target=prepare)
        thread.start()
        while not state.has_begun:
            threading.Event().wait(0.0001)
        was_beside = not state.is_done
        thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert was_beside


def test_what_cannot_be_used_says_why() -> None:
    metadata = all_pairs_bpe("gpt-2")
    tokenizer = load_tokenizer(metadata)
    endless = SimpleNamespace(vocabulary=tokenizer.vocabulary, words=None, end_of_generation=frozenset())
    with pytest.raises(NativeError, match="words are cut"):
        grammar_tokenizer(endless)
    prepared = grammar_tokenizer(tokenizer)
    for text in ("start: nowhere", 'start: "a\0b"', "", "{}"):
        assert isinstance(compile_grammar(prepared, text), GrammarError), text
    reply = reply_to(tokenizer, 'start: "abc"')
    with pytest.raises(GrammarError, match="cannot go on"):
        reply.accept(tokenizer.encode_within("x"))
    [mask] = compute_masks([reply], [()])
    assert not any(mask.allows(token) for token in range(tokenizer.vocab_size))


OTHER_VERSION = """
#include <stdint.h>
typedef struct {
  const void* tokenizer;
  uint32_t levels[2];
  _Bool flags[2];
  FIRST uint64_t limits[6];
  _Bool more_flags[2];
  LAST
} Init;
void llg_constraint_init_set_defaults(Init* init, const void* tokenizer) {
  *init = (Init){tokenizer, {0, 1}, {1, 0}, .limits = {9, 9, 9, 9, 9, 9}, .more_flags = {1, 1}};
}
"""
FUNCTIONS = """new_tokenizer_v2 free_tokenizer new_matcher clone_matcher free_matcher matcher_is_error
matcher_get_error matcher_is_stopped matcher_compute_mask_into matcher_consume_tokens matcher_rollback
matcher_validate_tokens matcher_compute_ff_tokens"""


@pytest.mark.parametrize(
    ("first", "last", "functions", "error"),
    [
        ("", "", FUNCTIONS, None),
        ("", "", FUNCTIONS.replace(" matcher_rollback", ""), "this llguidance has no llg_matcher_rollback"),
        ("", "uint64_t last;", FUNCTIONS, "this version of llguidance is not known"),
        ("uint64_t first;", "", FUNCTIONS, "this version of llguidance is not known"),
    ],
)
def test_another_version_is_told_from_the_one_that_is_known(
    tmp_path: Path, first: str, last: str, functions: str, error: str | None
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    stubs = "".join(f"void llg_{name}(void) {{}}\n" for name in functions.split())
    source.write_text(OTHER_VERSION.replace("FIRST", first).replace("LAST", last) + stubs)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    if error is None:
        Llguidance(str(library))
        return
    with pytest.raises(NativeError, match=error):
        Llguidance(str(library))
