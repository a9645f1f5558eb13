"""Any text gives exactly llama.cpp's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna.gguf import GgufFile
from puna.tokenizer import Tokenizer, load_tokenizer
from puna.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from tests.oracle.llamacpp import LlamaCpp
from tests.tokenizer.char_maps import REPLACEMENTS
from tests.tokenizer.texts import HARD_TEXTS, random_texts
from tests.tokenizer.vocabularies import (
    CONTROL,
    NORMAL,
    all_pairs_bpe,
    bpe,
    character_pairs,
    sentencepiece,
    unigram,
    word_pieces,
    write_model,
)

pytestmark = pytest.mark.oracle

# One name per way of cutting words.
PRE_NAMES = {pre: name for name, pre in reversed(PRE_TOKENIZERS.items())}.values()
NUM_TEXTS = 2000
FLAGS = list(product([False, True], repeat=2))


def without_some_bytes() -> dict[str, Any]:
    """Real vocabularies lack bytes that their training texts did not have; these are left out of the text."""
    metadata = all_pairs_bpe("smollm")
    alphabet_end = metadata["tokenizer.ggml.tokens"][:256]
    gone = {alphabet_end[byte] for byte in (0x00, 0x0C, 0x5E, 0xC3, 0xF0, 0x9F)}
    merges = [m for m in metadata["tokenizer.ggml.merges"] if not gone & set(m)]
    tokens = [c for c in alphabet_end if c not in gone] + [m.replace(" ", "") for m in merges]
    return bpe(tokens, merges, pre="smollm")


VOCABULARIES = {
    "no-pre": all_pairs_bpe(None) | {"tokenizer.ggml.pre": ""},
    "without-some-bytes": without_some_bytes(),
    "bos-and-eos": all_pairs_bpe("gpt-2", add_bos_token=True, add_eos_token=True),
    "no-bos": all_pairs_bpe("llama-bpe", add_bos_token=False),
    "phi-3": sentencepiece() | {"general.name": "Phi-3 mini"},
    "sentencepiece": sentencepiece(),
    "sentencepiece-no-prefix": sentencepiece(add_space_prefix=False),
    "sentencepiece-eos": sentencepiece(add_bos_token=False, add_eos_token=True),
    "unigram": unigram(),
    "unigram-keeps-spaces": unigram(remove_extra_whitespaces=False, add_bos_token=True),
    "unigram-without-map": {k: v for k, v in unigram(add_space_prefix=False).items() if "charsmap" not in k},
    "gemma4": character_pairs("", "gemma4", add_bos_token=False),
    "whitespace-lower": character_pairs("whitespace", "whitespace", **{"normalizer.lowercase": True}),
    "word-pieces": word_pieces(),
    "word-pieces-with-case": word_pieces(**{"normalizer.lowercase": False}),
    "word-pieces-with-accents": word_pieces(**{"normalizer.strip_accents": False}),
}


class Pair:
    """puna's tokenizer and llama.cpp's for the same file."""

    def __init__(self, tokenizer: Tokenizer, oracle: LlamaCpp) -> None:
        self.tokenizer = tokenizer
        self.oracle = oracle

    def check(self, text: str) -> None:
        for add_special, parse_special in FLAGS:
            flags = {"add_special": add_special, "parse_special": parse_special}
            assert self.tokenizer.encode(text, **flags) == self.oracle.tokenize(text, **flags), flags

    def check_many(
        self,
        tokens: Sequence[str],
        count: int = NUM_TEXTS,
        parsing: Sequence[bool] = (False, True),
    ) -> None:
        self.check(HARD_TEXTS[0])
        texts = [*HARD_TEXTS, *random_texts(tokens, count)]
        for parse_special in parsing:
            theirs = self.oracle.tokenize_many(texts, parse_special=parse_special)
            for text, expected in zip(texts, theirs, strict=True):
                ours = self.tokenizer.encode(text, add_special=False, parse_special=parse_special)
                assert ours == expected, text


@contextmanager
def loaded(path: Path) -> Iterator[Pair]:
    with GgufFile(path) as file, LlamaCpp(path, context=256) as oracle:
        yield Pair(load_tokenizer(file.metadata), oracle)


def tokens_of(path: Path) -> list[str]:
    with GgufFile(path) as file:
        return [
            text for text in file.metadata["tokenizer.ggml.tokens"] if text.isprintable() or text.isspace()
        ]


@pytest.mark.parametrize("pre", PRE_NAMES)
def test_words_are_cut_as_the_file_says(pre, tmp_path):
    vocabulary = (
        character_pairs(pre, "whitespace" if pre == "whitespace" else "gpt2")
        if PRE_TOKENIZERS[pre].in_characters
        else all_pairs_bpe(pre)
    )
    with loaded(write_model(tmp_path / "model.gguf", vocabulary)) as pair:
        # Few, since llama.cpp takes long for some; families have more of them.
        pair.check_many(vocabulary["tokenizer.ggml.tokens"], 300, parsing=[True])


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies(name, tmp_path):
    vocabulary = VOCABULARIES[name]
    with loaded(write_model(tmp_path / "model.gguf", vocabulary)) as pair:
        pair.check_many([*vocabulary["tokenizer.ggml.tokens"], *REPLACEMENTS])


def test_real_model(smollm2_path):
    with loaded(smollm2_path) as pair:
        pair.check_many(tokens_of(smollm2_path))


def test_large_vocabulary_on_many_texts(gemma3_path):
    """SentencePiece without a space in front, with tokens for runs of spaces and newlines."""
    with loaded(gemma3_path) as pair:
        pair.check_many(tokens_of(gemma3_path))


@pytest.mark.parametrize(
    "vocabulary", [all_pairs_bpe("gpt-2"), sentencepiece()], ids=["bpe", "sentencepiece"]
)
def test_tokens_that_end_a_reply_are_known_by_name(vocabulary, tmp_path):
    """A name makes a control token of a normal one, which is then found in text only if asked for."""
    metadata = dict(vocabulary)
    names = ["<|eot_id|>", "<end_of_turn>", "<PAD>", "<|channel|>", "<|fim_prefix|>", "<|other|>"]
    metadata["tokenizer.ggml.tokens"] = metadata["tokenizer.ggml.tokens"] + names
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    metadata["tokenizer.ggml.token_type"] = np.array(kinds + [NORMAL] * 5 + [CONTROL], np.int32)
    if "tokenizer.ggml.scores" in metadata:
        metadata["tokenizer.ggml.scores"] = np.append(metadata["tokenizer.ggml.scores"], [0.0] * 6)
    with loaded(write_model(tmp_path / "model.gguf", metadata)) as pair:
        pair.check(" x ".join(names))
