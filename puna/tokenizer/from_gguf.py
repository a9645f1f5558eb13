"""Builds vocabularies from GGUF metadata."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, VocabularyBuilder
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.fields import Fields
from puna.tokenizer.kinds import (
    ENDS_GENERATION,
    STRIPS_SPACE_AFTER,
    STRIPS_SPACE_BEFORE,
    Convention,
    TokenKind,
)
from puna.tokenizer.pre_tokenizers import DEFAULT_NAME, PRE_TOKENIZERS
from puna.tokenizer.tokenizer import Tokenizer
from puna.tokenizer.well_known import mark_by_name

log = logging.getLogger(__name__)

_PREFIX = "tokenizer.ggml."
MAX_CHAR_MAP = 4 << 20
"""Bytes. SentencePiece's own take less than 1 MiB."""
_MAX_SCORE = 1e30
_UNKNOWN_PENALTY = np.float32(10)
"""How much less likely than any token a character is that is none."""
_ROLE_KEYS = {
    "bos": ("cls_token_id", "bos_token_id"),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "separator": ("seperator_token_id",),
    "unknown": ("unknown_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}
_FLAG_KEYS = {
    Convention.ADD_SEPARATOR: "add_sep_token",
    Convention.ADD_SPACE_PREFIX: "add_space_prefix",
    Convention.LOWERCASE: "normalizer.lowercase",
    Convention.STRIP_ACCENTS: "normalizer.strip_accents",
    Convention.MERGE_SPACES: "remove_extra_whitespaces",
}
# These masks swallow the whitespace in front of them.
_MASK_STRIPS = {
    "tokenizer.ggml.pre": (("jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"), "<mask>"),
    "general.architecture": (("nomic-bert-moe", "jina-bert-v3"), "<mask>"),
    "general.name": (("modern-bert",), "[MASK]"),
}
# Phi-3's special tokens swallow the whitespace behind them, except these; no metadata says so.
_PHI3_KEEPS_SPACE_AFTER = ("<unk>", "<s>", "<|endoftext|>")


class _Defaults(NamedTuple):
    """What holds if the file does not say."""

    ids: Mapping[str, int] = MappingProxyType({})
    flags: Convention = Convention(0)
    always: Convention = Convention(0)
    """Whatever it says."""


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """From the `tokenizer.ggml.*` keys. Raises TokenizerError if they are missing, wrong or not supported."""
    return Tokenizer.from_blob(build_vocabulary(metadata))


def build_vocabulary(metadata: Mapping[str, Any]) -> bytes:
    """All that a Tokenizer needs, in the form of native/vocabulary/format.h: to be written into memory that
    processes share. Raises TokenizerError as load_tokenizer does.
    """
    fields = Fields(metadata)
    model = fields.string(f"{_PREFIX}model")
    pre = fields.string(f"{_PREFIX}pre", default="")
    # Files in Ollama's own form call Gemma 4's vocabulary SentencePiece's.
    if model == "gemma4" or (model == "llama" and pre == "gemma4"):
        return _pairs(fields, "gemma4")
    if model not in _MODELS:
        raise TokenizerError(
            f"{_PREFIX}model: {model[:40]!r} is not supported; supported are {', '.join(map(repr, _MODELS))}"
        )
    return _MODELS[model](fields)


def unknown_part(metadata: Mapping[str, Any]) -> str:
    """What of a tokenizer is not known here, so that texts may become other tokens than they should; empty:
    nothing. Raises TokenizerError.
    """
    fields = Fields(metadata)
    model, pre = fields.string(f"{_PREFIX}model"), fields.string(f"{_PREFIX}pre", default="")
    if model not in (*_MODELS, "gemma4"):
        return f"{_PREFIX}model: {model[:40]!r} is not supported"
    is_known = model != "gpt2" or pre in PRE_TOKENIZERS
    return "" if is_known else f"{_PREFIX}pre: {pre[:40]!r} is not known"


def build_stand_in(metadata: Mapping[str, Any]) -> bytes:
    """Of a tokenizer of a kind that is not known here: its tokens, without what cuts texts into them. Control
    tokens are found in it, and how many tokens a text has is told roughly. Raises TokenizerError.
    """
    builder = _tokens(Fields(metadata), _Defaults())
    return builder.sentencepiece(np.zeros(builder.size, np.float32).tobytes())


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Says in errors which key they are about."""
    try:
        yield
    except NativeError as error:
        raise TokenizerError(f"{_PREFIX}{key}: {error}") from error


def _byte_pairs(fields: Fields) -> bytes:
    return _pairs(fields, _pre_tokenizer(fields))


def _pairs(fields: Fields, name: str) -> bytes:
    pre_tokenizer = PRE_TOKENIZERS[name]
    builder = _tokens(fields, _Defaults(flags=pre_tokenizer.conventions, always=pre_tokenizer.always))
    merges = fields.strings(f"{_PREFIX}merges")
    with _naming("merges"):
        if pre_tokenizer.in_characters:
            return builder.character_pairs(merges, name)
        return builder.byte_pairs(merges, name)


def _sentencepiece(fields: Fields) -> bytes:
    flags = Convention.ADD_BOS | Convention.ADD_SPACE_PREFIX
    builder = _tokens(fields, _Defaults({"unknown": 0, "bos": 1, "eos": 2}, flags))
    return builder.sentencepiece(_scores(fields, builder.size).tobytes())


def _scores(fields: Fields, vocab_size: int) -> NDArray[np.float32]:
    scores = fields.numbers(f"{_PREFIX}scores", vocab_size)
    return np.zeros(vocab_size, np.float32) if scores is None else scores.astype(np.float32)


def _unigram(fields: Fields) -> bytes:
    builder = _tokens(fields, _Defaults({"unknown": 2, "eos": 1}, Convention.ADD_EOS))
    scores = _scores(fields, builder.size)
    scores = np.nan_to_num(scores, nan=-_MAX_SCORE).clip(-_MAX_SCORE, _MAX_SCORE)
    kinds = np.frombuffer(bytes(_kinds(fields, builder.size)), np.uint8)
    lowest = scores[kinds == TokenKind.NORMAL].min(initial=_MAX_SCORE)
    scores[kinds == TokenKind.USER_DEFINED] = 0
    scores[~np.isin(kinds, (TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED))] = -np.inf
    if char_map := fields.octets(f"{_PREFIX}precompiled_charsmap", MAX_CHAR_MAP):
        with _naming("precompiled_charsmap"):
            builder.set_char_map(char_map)
    with _naming("tokens"):
        return builder.unigram(scores.tobytes(), float(lowest - _UNKNOWN_PENALTY))


def _word_pieces(fields: Fields) -> bytes:
    adds = Convention.ADD_BOS | Convention.ADD_SEPARATOR | Convention.END_WITH_SEPARATOR
    defaults = _Defaults({"unknown": 100, "bos": 101, "separator": 102}, adds | Convention.LOWERCASE)
    builder = _tokens(fields, defaults)
    with _naming("tokens"):
        return builder.word_pieces()


_MODELS = {
    "gpt2": _byte_pairs,
    "whitespace": _byte_pairs,
    "llama": _sentencepiece,
    "t5": _unigram,
    "bert": _word_pieces,
}


def _pre_tokenizer(fields: Fields) -> str:
    name = fields.string(f"{_PREFIX}pre", default="")
    if name not in PRE_TOKENIZERS:
        log.warning("%spre: %r is not known; using 'default', replies may suffer", _PREFIX, name[:40])
        return DEFAULT_NAME
    return name


def _tokens(fields: Fields, defaults: _Defaults) -> VocabularyBuilder:
    texts = fields.strings(f"{_PREFIX}tokens")
    if not len(texts):
        raise TokenizerError(f"{_PREFIX}tokens is empty")
    with _naming("tokens"):
        builder = VocabularyBuilder(texts)
    traits = _kinds(fields, builder.size)
    named = _named_ids(fields, defaults, builder.size)
    ends = mark_by_name(builder.find, traits, named)
    strip = _strip_space_after(fields, builder, traits)
    masks = _strip_space_before(fields, builder)
    for token in ends:
        traits[token] |= ENDS_GENERATION
    for token in strip:
        traits[token] |= STRIPS_SPACE_AFTER
    for token in masks:
        traits[token] |= STRIPS_SPACE_BEFORE
    with _naming("tokens"):
        builder.set_traits(bytes(traits))
    builder.set_conventions(
        _flags(fields, named, defaults),
        **{f"{role}_id": named[role] for role in ("bos", "eos", "separator", "unknown")},
    )
    return builder


def _flags(fields: Fields, named: Mapping[str, int | None], defaults: _Defaults) -> Convention:
    flags = defaults.flags
    for flag, role in ((Convention.ADD_BOS, "bos"), (Convention.ADD_EOS, "eos")):
        added = flag in defaults.always or _adds(fields, role, named[role], flag in flags)
        flags = _with(flags, flag, added and named[role] is not None)
    for flag, key in _FLAG_KEYS.items():
        said = fields.boolean(_PREFIX + key)
        flags = _with(flags, flag, flag in flags if said is None else said)
        if flag == Convention.LOWERCASE:
            flags = _with(flags, Convention.STRIP_ACCENTS, flag in flags)
    return _with(
        flags, Convention.ADD_SEPARATOR, Convention.ADD_SEPARATOR in flags and named["separator"] is not None
    )


def _with(flags: Convention, flag: Convention, wanted: bool) -> Convention:
    return flags | flag if wanted else flags & ~flag


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
    key = f"add_{role}_token"
    explicit = fields.boolean(_PREFIX + key)
    if explicit and token is None:
        raise TokenizerError(f"{_PREFIX}{key} is true, but {_PREFIX}{_ROLE_KEYS[role][-1]} is missing")
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


def _strip_space_before(fields: Fields, builder: VocabularyBuilder) -> set[int]:
    masks = {
        builder.find(mask)
        for key, (names, mask) in _MASK_STRIPS.items()
        if any(name in fields.string(key, default="").lower() for name in names)
    }
    return {token for token in masks if token is not None}
