"""Builds a tokenizer from GGUF metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from puna.tokenizer.bpe import ByteLevelBpe
from puna.tokenizer.byte_level import byte_value
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.fields import Fields
from puna.tokenizer.pre_tokenizers import DEFAULT, PRE_TOKENIZERS, PreTokenizer
from puna.tokenizer.sentencepiece import SentencePieceBpe
from puna.tokenizer.tokenizer import Tokenizer
from puna.tokenizer.vocabulary import TokenKind, Vocabulary
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
_PHI3_KEEPS_SPACE_AFTER = {"<unk>", "<s>", "<|endoftext|>"}


class _Defaults(NamedTuple):
    """What holds if the file does not say."""

    ids: Mapping[str, int]
    add_bos: bool


def load_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """From the `tokenizer.ggml.*` keys. Raises TokenizerError if they are missing, wrong or not supported."""
    fields = Fields(metadata)
    model = fields.string(f"{_PREFIX}model")
    if model == "gpt2":
        return _byte_level_bpe(fields)
    if model == "llama":
        return _sentencepiece_bpe(fields)
    raise TokenizerError(
        f"{_PREFIX}model: {model!r} is not supported; "
        "supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece)"
    )


def _byte_level_bpe(fields: Fields) -> Tokenizer:
    pre_tokenizer = _pre_tokenizer(fields)
    vocabulary = _vocabulary(fields, _Defaults({}, pre_tokenizer.add_bos))
    return Tokenizer(vocabulary, ByteLevelBpe(vocabulary, fields.strings(f"{_PREFIX}merges"), pre_tokenizer))


def _sentencepiece_bpe(fields: Fields) -> Tokenizer:
    vocabulary = _vocabulary(fields, _Defaults({"unknown": 0, "bos": 1, "eos": 2}, add_bos=True))
    scores = fields.numbers(f"{_PREFIX}scores", len(vocabulary))
    if scores is None:
        scores = np.zeros(len(vocabulary))
    prefix = fields.boolean(f"{_PREFIX}add_space_prefix")
    model = SentencePieceBpe(vocabulary, scores.astype(np.float32), prefix is not False)
    return Tokenizer(vocabulary, model)


def _pre_tokenizer(fields: Fields) -> PreTokenizer:
    name = fields.string(f"{_PREFIX}pre", default="")
    if name not in PRE_TOKENIZERS:
        log.warning("%spre: %r is not known; using 'default', replies may suffer", _PREFIX, name)
        return DEFAULT
    return PRE_TOKENIZERS[name]


def _vocabulary(fields: Fields, defaults: _Defaults) -> Vocabulary:
    texts = fields.strings(f"{_PREFIX}tokens")
    if not texts:
        raise TokenizerError(f"{_PREFIX}tokens is empty")
    ids = dict(zip(texts, range(len(texts)), strict=True))
    if "" in ids:
        texts = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
        ids = dict(zip(texts, range(len(texts)), strict=True))
    if len(ids) < len(texts):
        twice = next(text for token, text in enumerate(texts) if ids[text] != token)
        raise TokenizerError(f"{_PREFIX}tokens: {twice!r} is there more than once")
    kinds = _kinds(fields, texts)
    named = _named_ids(fields, defaults, len(texts))
    end_of_generation = mark_by_name(ids, kinds, named)
    return Vocabulary(
        texts=texts,
        kinds=bytes(kinds),
        ids=ids,
        bos_id=named["bos"],
        eos_id=named["eos"],
        unknown_id=named["unknown"],
        end_of_generation=end_of_generation,
        add_bos=_adds(fields, "bos", named["bos"], defaults.add_bos),
        add_eos=_adds(fields, "eos", named["eos"], default=False),
        strips_space_after=_strips_space_after(fields, texts, kinds),
    )


def _kinds(fields: Fields, texts: Sequence[str]) -> bytearray:
    """A TokenKind for each; numbers that are none are UNDEFINED."""
    numbers = fields.numbers(f"{_PREFIX}token_type", len(texts))
    if numbers is None:
        return bytearray([TokenKind.NORMAL]) * len(texts)
    kinds = np.where((numbers >= 0) & (numbers <= max(TokenKind)), numbers, TokenKind.UNDEFINED)
    for token in np.flatnonzero(kinds == TokenKind.BYTE).tolist():
        byte_value(texts[token])
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


def _strips_space_after(fields: Fields, texts: Sequence[str], kinds: Sequence[int]) -> frozenset[int]:
    name = fields.string("general.name", default="").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    special = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
    return frozenset(
        token
        for token, kind in enumerate(kinds)
        if (kind in special or texts[token] == "</s>") and texts[token] not in _PHI3_KEEPS_SPACE_AFTER
    )
