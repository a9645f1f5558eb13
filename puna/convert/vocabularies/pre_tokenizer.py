"""Names of the ways in which byte-level BPE cuts words, found by the patterns that tokenizer.json has.

The patterns are those of the models that llama.cpp knows by these names.
"""

from __future__ import annotations

from typing import Any

from puna.convert.errors import ConversionError

_NAME = "tokenizer.json"
_DIGIT = r"\p{N}"
_DIGITS = r"\p{N}+"
_MARKS = "marks in a row"
_GPT2 = "GPT-2's"
"""What ByteLevel cuts by itself."""

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NEWLINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(
    digits: str, contraction: str = f"{_CONTRACTION}|", letters: str = r"\p{L}", more: str = ""
) -> str:
    marks = rf"[^\s{letters.strip('[]')}\p{{N}}]+[\r\n]*" if more else r"[^\s\p{L}\p{N}]+[\r\n]*"
    return rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?{marks}|{_NEWLINES_AND_SPACES}"


def _cased(contraction: str, digits: str) -> str:
    start, upper, lower = (
        r"[^\r\n\p{L}\p{N}]?",
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
    )
    return (
        rf"{start}{upper}*{lower}+{contraction}|{start}{upper}+{lower}*{contraction}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_NEWLINES_AND_SPACES}"
    )


_LLAMA3 = (_words(r"\p{N}{1,3}"),)
_NAMES: dict[tuple[str, ...], str] = {
    (_GPT2,): "gpt-2",
    (_DIGIT, _GPT2): "smollm",
    (_MARKS, _GPT2, _DIGITS, "[0-9][0-9][0-9]"): "falcon",
    (_words(_DIGIT),): "qwen2",
    (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_NEWLINES_AND_SPACES}",
    ): "qwen35",
    (_cased(f"{_CONTRACTION}?", r"\p{N}{1,3}"),): "gpt-4o",
    (_cased("", _DIGIT),): "tekken",
    (
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_NEWLINES_AND_SPACES}",
    ): "deepseek-v3",
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT): "deepseek-coder",
}

# The same in other words.
_SPELLINGS = (
    ("\r", r"\r"),
    ("\n", r"\n"),
    ("?+", "?"),
    ("++", "+"),
    ("'(?i:[sdmt]|ll|ve|re)", _CONTRACTION),
    (r"\p{N}{1}", _DIGIT),
    (r"\s++$|", ""),
)


def pre_tokenizer_name(parts: list[dict[str, Any]], ignores_merges: bool) -> str:
    """parts: of tokenizer.json's pre-tokenizer, one after the other. ignores_merges: a word that is a token
    is that token. Raises ConversionError for a pattern that is not known: words would be cut wrongly.
    """
    patterns = tuple(pattern for part in parts if (pattern := _pattern(part)) is not None)
    if patterns == _LLAMA3:
        return "llama-bpe" if ignores_merges else "dbrx"
    if patterns not in _NAMES:
        shown = ", ".join(patterns)[:300]
        raise ConversionError(f"{_NAME}: this way to cut words is not known: {shown}")
    return _NAMES[patterns]


def _pattern(part: dict[str, Any]) -> str | None:
    """None: it cuts nothing."""
    kind = part.get("type")
    if kind == "ByteLevel":
        return _GPT2 if part.get("use_regex", True) else None
    if kind == "Digits":
        return _DIGIT if part.get("individual_digits") else _DIGITS
    if kind == "Punctuation" and part.get("behavior") == "Contiguous":
        return _MARKS
    pattern = part.get("pattern")
    if kind == "Split" and isinstance(pattern, dict) and isinstance(text := pattern.get("Regex"), str):
        for other, ours in _SPELLINGS:
            text = text.replace(other, ours)
        return text
    raise ConversionError(f"{_NAME}: a pre-tokenizer {str(kind)[:40]!r} is not known")
