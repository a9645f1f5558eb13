"""tokenizer.json: a vocabulary as Hugging Face's tokenizers store it.

Format: the tokenizers library's serialization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files, decoded
from puna.convert.vocabularies.pre_tokenizer import pre_tokenizer_name
from puna.convert.vocabularies.vocabulary import MAX_TOKENS, AddedToken, Token, Vocabulary
from puna.gguf.writer import GgufValue, boolean
from puna.tokenizer.kinds import TokenKind

NAME = "tokenizer.json"
_MAX_BYTES = 256 << 20
_SPACE, _ENCODED_SPACE = " ", "Ġ"
_MAX_DEPTH = 8
_OF_LETTERS = ("Lowercase", "StripAccents", "BertNormalizer")


class NumberedToken(AddedToken, frozen=True):
    id: int = -1


class JsonModel(msgspec.Struct):
    vocab: msgspec.Raw
    type: str = "BPE"
    merges: list[str | tuple[str, str]] = []
    byte_fallback: bool = False
    ignore_merges: bool = False
    unk_token: str | None = None
    unk_id: int | None = None
    """Of Unigram."""
    continuing_subword_prefix: str | None = None
    """Of WordPiece."""


class TokenizerJson(msgspec.Struct):
    model: JsonModel
    added_tokens: list[NumberedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None


def read_tokenizer_json(files: Files) -> TokenizerJson:
    """Raises ConversionError."""
    return files.json(NAME, TokenizerJson, _MAX_BYTES)


def bpe_vocabulary(tokenizer: TokenizerJson) -> Vocabulary:
    """Byte-level BPE's, or SentencePiece's. Raises ConversionError."""
    model = tokenizer.model
    tokens = numbered_tokens(model)
    if model.byte_fallback:
        vocabulary = Vocabulary(model="llama", pre="default", tokens=tokens)
        _score(tokenizer, tokens)
        vocabulary.add_space_prefix = _adds_space_prefix(tokenizer)
    else:
        name = pre_tokenizer_name(list(parts(tokenizer.pre_tokenizer, "pretokenizers")), model.ignore_merges)
        merges = [
            merge if isinstance(merge, str) else " ".join(map(_joined, merge)) for merge in model.merges
        ]
        vocabulary = Vocabulary(model="gpt2", pre=name, tokens=tokens, merges=merges)
    for added in tokenizer.added_tokens:
        vocabulary.add(added.id, added)
    return vocabulary


def numbered_tokens(model: JsonModel) -> dict[int, Token]:
    """Of a vocabulary that says a number for each. Raises ConversionError."""
    ids = decoded(f"{NAME}: vocab", bytes(model.vocab), dict[str, int])
    tokens = {token: Token(text) for text, token in ids.items()}
    if len(tokens) != len(ids):
        raise ConversionError(f"{NAME}: two tokens have the same number")
    if tokens and not 0 <= min(tokens) <= max(tokens) < MAX_TOKENS:
        raise ConversionError(f"the tokenizer has tokens from {min(tokens)} to {max(tokens)}")
    return tokens


def normalizer_values(tokenizer: TokenizerJson) -> dict[str, GgufValue]:
    """Metadata of what happens to letters. Raises ConversionError."""
    values: dict[str, GgufValue] = {}
    for part in parts(tokenizer.normalizer, "normalizers"):
        kind = part.get("type")
        said = {"Lowercase": {"lowercase": True}, "StripAccents": {"strip_accents": True}}.get(
            str(kind), part
        )
        for name in ("lowercase", "strip_accents") if kind in _OF_LETTERS else ():
            if isinstance(value := said.get(name), bool):
                values[f"tokenizer.ggml.normalizer.{name}"] = boolean(value)
    return values


def parts(component: dict[str, Any] | None, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Of a normalizer, pre-tokenizer or post-processor, which may be a sequence of others, below `key`.

    Raises ConversionError.
    """
    if component is None:
        return
    inner = component.get(key)
    if component.get("type") != "Sequence":
        yield component
    elif not isinstance(inner, list) or depth == _MAX_DEPTH:
        raise ConversionError(f"{NAME}: {key} is no list, or too deep")
    else:
        for part in inner:
            if not isinstance(part, dict):
                raise ConversionError(f"{NAME}: {key} has something that is no object")
            yield from parts(part, key, depth + 1)


def _joined(part: str) -> str:
    """A merge's halves are separated by a space, so spaces within them are written as byte-level BPE does."""
    return part.replace(_SPACE, _ENCODED_SPACE)


def _score(tokenizer: TokenizerJson, tokens: dict[int, Token]) -> None:
    """SentencePiece merges what has the best score first: the score says when a token is first made."""
    ids = {token.text: number for number, token in tokens.items()}
    for token in tokens.values():
        if len(token.text) == 6 and token.text.startswith("<0x") and token.text.endswith(">"):
            token.kind = TokenKind.BYTE
    if tokenizer.model.unk_token in ids:
        tokens[ids[tokenizer.model.unk_token]].kind = TokenKind.UNKNOWN
    order = 0
    scored = set()
    for merge in tokenizer.model.merges:
        text = merge.replace(_SPACE, "", 1) if isinstance(merge, str) else "".join(merge)
        if text in ids and text not in scored:
            scored.add(text)
            order += 1
            tokens[ids[text]].score = -float(order)


def _adds_space_prefix(tokenizer: TokenizerJson) -> bool:
    """Whether a text gets a space before it."""
    for part in parts(tokenizer.normalizer, "normalizers"):
        if part.get("type") == "Prepend":
            return True
    for part in parts(tokenizer.pre_tokenizer, "pretokenizers"):
        if part.get("type") == "Metaspace":
            return (
                part.get("prepend_scheme", "always") != "never" and part.get("add_prefix_space") is not False
            )
    return False
