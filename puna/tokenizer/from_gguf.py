"""Builds vocabularies from GGUF metadata."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from puna._native import NativeError, VocabularyBuilder
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.fields import Fields
from puna.tokenizer.kinds import ENDS_GENERATION, STRIPS_SPACE_AFTER, TokenKind
from puna.tokenizer.pre_tokenizers import DEFAULT_NAME, PRE_TOKENIZERS
from puna.tokenizer.tokenizer import Tokenizer
from puna.tokenizer.well_known import mark_by_name

log = logging.getLogger(__name__)

_PREFIX = "tokenizer.ggml."
_ROLE_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unknown": ("unknown_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}
# Phi-3's special tokens swallow the whitespace behind them, except these; no metadata says so.
_PHI3_KEEPS_SPACE_AFTER = ("<unk>", "<s>", "<|endoftext|>")


class _Defaults(NamedTuple):
    """What holds if the file does not say."""

    ids: Mapping[str, int]
    add_bos: bool


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """From the `tokenizer.ggml.*` keys. Raises TokenizerError if they are missing, wrong or not supported."""
    return Tokenizer.from_blob(build_vocabulary(metadata))


def build_vocabulary(metadata: Mapping[str, Any]) -> bytes:
    """All that a Tokenizer needs, in the form of native/vocabulary/format.h: to be written into memory that
    processes share. Raises TokenizerError as load_tokenizer does.
    """
    fields = Fields(metadata)
    model = fields.string(f"{_PREFIX}model")
    if model == "gpt2":
        return _byte_level_bpe(fields)
    if model == "llama":
        return _sentencepiece_bpe(fields)
    raise TokenizerError(
        f"{_PREFIX}model: {model[:40]!r} is not supported; "
        "supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)"
    )


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Says in errors which key they are about."""
    try:
        yield
    except NativeError as error:
        raise TokenizerError(f"{_PREFIX}{key}: {error}") from error


def _byte_level_bpe(fields: Fields) -> bytes:
    name = _pre_tokenizer(fields)
    pre_tokenizer = PRE_TOKENIZERS[name]
    builder = _tokens(fields, _Defaults({}, pre_tokenizer.add_bos), whole_words=pre_tokenizer.ignore_merges)
    merges = fields.strings(f"{_PREFIX}merges")
    with _naming("merges"):
        return builder.byte_pairs(merges, name)


def _sentencepiece_bpe(fields: Fields) -> bytes:
    defaults = _Defaults({"unknown": 0, "bos": 1, "eos": 2}, add_bos=True)
    prefix = fields.boolean(f"{_PREFIX}add_space_prefix")
    builder = _tokens(fields, defaults, add_space_prefix=prefix is not False)
    scores = fields.numbers(f"{_PREFIX}scores", builder.size)
    if scores is None:
        scores = np.zeros(builder.size)
    return builder.sentencepiece(scores.astype(np.float32).tobytes())


def _pre_tokenizer(fields: Fields) -> str:
    name = fields.string(f"{_PREFIX}pre", default="")
    if name not in PRE_TOKENIZERS:
        log.warning("%spre: %r is not known; using 'default', replies may suffer", _PREFIX, name[:40])
        return DEFAULT_NAME
    return name


def _tokens(
    fields: Fields, defaults: _Defaults, *, add_space_prefix: bool = False, whole_words: bool = False
) -> VocabularyBuilder:
    texts = fields.strings(f"{_PREFIX}tokens")
    if not len(texts):
        raise TokenizerError(f"{_PREFIX}tokens is empty")
    with _naming("tokens"):
        builder = VocabularyBuilder(texts)
    traits = _kinds(fields, builder.size)
    named = _named_ids(fields, defaults, builder.size)
    ends = mark_by_name(builder.find, traits, named)
    strip = _strip_space_after(fields, builder, traits)
    for token in ends:
        traits[token] |= ENDS_GENERATION
    for token in strip:
        traits[token] |= STRIPS_SPACE_AFTER
    with _naming("tokens"):
        builder.set_traits(bytes(traits))
    builder.set_conventions(
        bos_id=named["bos"],
        eos_id=named["eos"],
        unknown_id=named["unknown"],
        add_bos=_adds(fields, "bos", named["bos"], defaults.add_bos),
        add_eos=_adds(fields, "eos", named["eos"], default=False),
        add_space_prefix=add_space_prefix,
        whole_words=whole_words,
    )
    return builder


def _kinds(fields: Fields, vocab_size: int) -> bytearray:
    """A TokenKind for each; numbers that are none are UNDEFINED."""
    numbers = fields.numbers(f"{_PREFIX}token_type", vocab_size)
    if numbers is None:
        return bytearray([TokenKind.NORMAL]) * vocab_size
    kinds = np.where((numbers >= 0) & (numbers <= max(TokenKind)), numbers, TokenKind.UNDEFINED)
    return bytearray(kinds.astype(np.uint8).tobytes())


def _named_ids(fields: Fields, defaults: _Defaults, vocab_size: int) -> dict[str, int | None]:
    named: dict[str, int | None] = {}
    for role, keys in _ROLE_KEYS.items():
        default = defaults.ids.get(role)
        named[role] = default if default is not None and default < vocab_size else None
        for key in keys:
            token = fields.token_id(_PREFIX + key, vocab_size)
            named[role] = token if token is not None else named[role]
    return named


def _adds(fields: Fields, role: str, token: int | None, default: bool) -> bool:
    explicit = fields.boolean(f"{_PREFIX}add_{role}_token")
    if explicit and token is None:
        raise TokenizerError(f"{_PREFIX}add_{role}_token is true, but {_PREFIX}{role}_token_id is missing")
    return default and token is not None if explicit is None else explicit


def _strip_space_after(fields: Fields, builder: VocabularyBuilder, kinds: bytearray) -> set[int]:
    name = fields.string("general.name", default="").lower()
    if "phi-3" not in name and "phi3" not in name:
        return set()
    special = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
    tokens: set[int | None] = {token for token, kind in enumerate(kinds) if kind in special}
    tokens.add(builder.find("</s>"))
    tokens.difference_update([builder.find(text) for text in _PHI3_KEEPS_SPACE_AFTER])
    return {token for token in tokens if token is not None}
