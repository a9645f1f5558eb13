"""A vocabulary is read where it lies, by any process, and nothing in it is believed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest

from puna.tokenizer import Tokenizer, TokenizerError, build_vocabulary
from tests.tokenizer.texts import HARD_TEXTS
from tests.tokenizer.vocabularies import all_pairs_bpe, bpe, sentencepiece, unigram, word_pieces

pytestmark = pytest.mark.native

BLOBS = {"bpe": build_vocabulary(all_pairs_bpe("gpt-2")), "sentencepiece": build_vocabulary(sentencepiece())}
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@pytest.fixture
def descriptor() -> Iterator[int]:
    fd = os.memfd_create("vocabulary", os.MFD_ALLOW_SEALING)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
def test_sealed_memory_gives_the_same_tokens(blob, descriptor):
    os.write(descriptor, blob)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    shared, own = Tokenizer.from_descriptor(descriptor), Tokenizer.from_blob(blob)
    for text in HARD_TEXTS:
        assert shared.encode(text) == own.encode(text)


@pytest.mark.parametrize("missing", [fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK])
def test_memory_that_could_change_is_refused(missing, descriptor):
    os.write(descriptor, BLOBS["bpe"])
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS & ~missing)
    with pytest.raises(TokenizerError, match="not of sealed memory"):
        Tokenizer.from_descriptor(descriptor)


def test_file_is_refused(tmp_path):
    (tmp_path / "vocabulary").write_bytes(BLOBS["bpe"])
    with (
        (tmp_path / "vocabulary").open("rb") as file,
        pytest.raises(TokenizerError, match="not of sealed memory"),
    ):
        Tokenizer.from_descriptor(file.fileno())


@pytest.mark.parametrize("blob", [b"", b"x" * 1000, BLOBS["bpe"][:-8], BLOBS["bpe"] + b"12345678"])
def test_what_is_no_vocabulary_is_refused(blob):
    with pytest.raises(TokenizerError, match="header is damaged"):
        Tokenizer.from_blob(blob)


@pytest.mark.parametrize("made", [unigram, word_pieces])
def test_lengths_of_tokens_that_are_too_small_are_refused(made):
    """The list of how long tokens are that begin as a text does, the last thing in a vocabulary."""
    blob = build_vocabulary(made())
    num_bytes = 2 << 16
    assert any(blob[-num_bytes:])
    for length in (0, 1):
        with pytest.raises(TokenizerError, match="list of lengths"):
            Tokenizer.from_blob(blob[:-num_bytes] + length.to_bytes(2, "little") * (num_bytes // 2))


SMALL = {
    "bpe": build_vocabulary(bpe([*"abcdehlorw", "he", "ll", "hell"], ["h e", "l l", "he ll"])),
    "sentencepiece": build_vocabulary(sentencepiece()),
}


@pytest.mark.parametrize("blob", SMALL.values(), ids=SMALL)
def test_damage_is_refused_or_harmless(blob):
    """Each number of it replaced by others."""
    for at in range(0, len(blob) - 4, 4):
        for number in (0, 1, 70, 1_000_000, 0x7FFFFFFF, 0xFFFFFFFF):
            damaged = blob[:at] + number.to_bytes(4, "little") + blob[at + 4 :]
            try:
                tokenizer = Tokenizer.from_blob(damaged)
            except TokenizerError:
                continue
            for token in tokenizer.encode("hello <|im_start|> <tool><tool><tool> yellow ñandú 🙂"):
                tokenizer.token_bytes(token)
            tokenizer.token_table()
