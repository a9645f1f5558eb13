"""How byte-level BPE models cut text into words before merging, by the name in `tokenizer.ggml.pre`.

Each pattern is applied within the pieces that the patterns before it left. The patterns are those that
llama.cpp uses, which for a few models differ slightly from the ones the model was trained with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from puna._native import WordCutter
from puna.tokenizer.kinds import Convention

_NONE, _WHOLE_WORDS, _ADD_BOS = Convention(0), Convention.WHOLE_WORDS, Convention.ADD_BOS
_WRITE_SPACES, _WHOLE_NEWLINES = Convention.WRITE_SPACES, Convention.WHOLE_NEWLINES


@dataclass(frozen=True)
class PreTokenizer:
    patterns: tuple[str, ...]
    """In the syntax of native/words/pattern.h."""
    digits_in_threes: bool = False
    """After the patterns, runs of digits are cut in threes, counted from their end."""
    numbers_in_threes: bool = False
    """Before the patterns, likewise, but what is before a run stays with its first digits."""
    in_characters: bool = False
    """The vocabulary is written in characters, not in those that stand for bytes."""
    conventions: Convention = _NONE
    """If the file does not say."""
    always: Convention = _NONE
    """Whatever the file says."""


_CONTRACTION = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_NEWLINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str, contraction: str = rf"{_CONTRACTION}|", letters: str = r"\p{L}+") -> str:
    """The family that began with cl100k: a word takes one mark before it, marks the newlines after them."""
    return rf"{contraction}[^\r\n\p{{L}}\p{{N}}]?{letters}|{digits}|{_MARKS}|{_NEWLINES_AND_SPACES}"


_LLAMA3 = _words(r"\p{N}{1,3}")
_QWEN2 = _words(r"\p{N}")


def _cased_words(upper: str, lower: str, contraction: str, digits: str) -> str:
    """The family that began with o200k: a word is capitals, then small letters."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{start}{upper}*{lower}+{contraction}|{start}{upper}+{lower}*{contraction}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_NEWLINES_AND_SPACES}"
    )


# Only ASCII letters have a case here; all others count as both.
_UPPER, _LOWER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"
_UPPER_OR_MARK, _LOWER_OR_MARK = r"[[\p{L}\p{M}]&&[^a-z]]", r"[[\p{L}\p{M}]&&[^A-Z]]"
_LETTER_OR_MARK = r"[\p{L}\p{M}]"

# What Kimi takes for Chinese.
_HAN = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}"
    r"\x{2F800}-\x{2FA1F}"
)

_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
# The long range has spaces in it, which llama.cpp does not take for part of it.
_CJK_AND_BETWEEN = r"[[一-龥ࠀ-一가-퟿]&&\S]+"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_NEWLINES_AND_SPACES}",
)
# Scripts that are written without spaces, and Hangul.
_ASIAN = (
    "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
)
# Cased letters, as of some older Unicode.
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 "
    "1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC "
    "1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 "
    "213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B "
    "A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_CLASS = re.sub(r"([0-9A-F]+) ?", r"\\x{\1}", _DEEPSEEK_LETTERS)

DEFAULT_NAME = "default"
_DEFAULT = PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))

# (names, what they mean)
_FAMILIES: tuple[tuple[str, PreTokenizer], ...] = (
    (DEFAULT_NAME, _DEFAULT),
    (
        "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion granite-docling "
        "jina-es jina-de jina-v2-es jina-v2-de",
        PreTokenizer((_GPT2,)),
    ),
    (
        "jina-v1-en jina-v2-code roberta-bpe",
        PreTokenizer((_GPT2,), conventions=Convention.ADD_SEPARATOR),
    ),
    (
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    ("falcon", PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        PreTokenizer((_LLAMA3,), conventions=_WHOLE_WORDS | _ADD_BOS),
    ),
    ("dbrx smaug-bpe chatglm-bpe", PreTokenizer((_LLAMA3,))),
    ("glm4 glm5", PreTokenizer((_LLAMA3,), conventions=_WHOLE_WORDS)),
    ("minicpm5", PreTokenizer((r"\p{N}{1,3}", _words(r"\p{N}+")), conventions=_WHOLE_WORDS)),
    (
        "jais-2",
        PreTokenizer(
            (
                _LLAMA3.removesuffix(r"|\s+(?!\S)|\s+")
                + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
                + r"|\s{1,2}(?!\S)|\s",
            )
        ),
    ),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        PreTokenizer((_QWEN2,)),
    ),
    (
        "qwen35",
        PreTokenizer(
            (_words(r"\p{N}", letters=r"[\p{L}\p{M}]+").replace(_MARKS, r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),)
        ),
    ),
    ("ufakzeka", PreTokenizer((_words(r"\p{N}", contraction=""),))),
    ("seed-coder", PreTokenizer((_QWEN2.replace(_MARKS, r" ?[^\s\p{L}\p{N}\r\n]+"),))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_QWEN2.replace(r"\s*[\r\n]+|", r"\s*[\r\n]|"),))),
    (
        "exaone-moe",
        PreTokenizer(
            (
                _words(r"\p{N}", letters=r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+")
                .replace(_MARKS, r" ?[^\s\p{L}\p{N}]+[\r\n/]?")
                .replace(r"\s*[\r\n]+|", r"\s*[\r\n]|"),
            )
        ),
    ),
    ("laguna", PreTokenizer((r"[^\n]+|[\n]+", _QWEN2))),
    (
        "gpt-4o llama4 kanana2 talkie minimax-m2",
        PreTokenizer((_cased_words(_UPPER, _LOWER, f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),)),
    ),
    (
        "granite-embed-multi-97m",
        PreTokenizer(
            (_cased_words(_UPPER_OR_MARK, _LOWER_OR_MARK, f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),),
            conventions=_WHOLE_WORDS,
        ),
    ),
    (
        "tiny_aya cohere2moe",
        PreTokenizer(
            (_cased_words(_LETTER_OR_MARK, _LETTER_OR_MARK, f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),),
            numbers_in_threes=True,
        ),
    ),
    (
        "youtu",
        PreTokenizer(
            (
                r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
                _cased_words(_LETTER_OR_MARK, _LETTER_OR_MARK, f"(?:{_CONTRACTION})?", r"\p{N}"),
            ),
            conventions=_WHOLE_WORDS,
        ),
    ),
    (
        "afmoe",
        PreTokenizer((_ASIAN, _DEEPSEEK3[2]), numbers_in_threes=True),
    ),
    (
        "tekken",
        PreTokenizer((_cased_words(_UPPER, _LOWER, "", r"\p{N}"),), conventions=_WHOLE_WORDS | _ADD_BOS),
    ),
    (
        "kimi-k2",
        PreTokenizer(
            (
                rf"[{_HAN}]+|"
                + _words(r"\p{N}{1,3}", contraction="", letters=rf"[\p{{L}}&&[^{_HAN}]]+(?:{_CONTRACTION})?"),
            )
        ),
    ),
    ("superbpe", PreTokenizer((r"\p{N}+",), digits_in_threes=True)),
    ("poro-chat bloom gpt3-finnish", PreTokenizer((_BLOOM,))),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", PreTokenizer(_DEEPSEEK3)),
    (
        "spark2_5",
        PreTokenizer(
            (
                *_DEEPSEEK3[:2],
                _DEEPSEEK3[2]
                .replace(r" ?[\p{P}\p{S}]+[\r\n]*", r" ?[\p{P}\p{S}]+")
                .replace(r"\s*[\r\n]+", r"[\r\n]"),
                r"\p{N}",
            )
        ),
    ),
    (
        "deepseek-coder",
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_BETWEEN, r"\p{N}")),
    ),
    (
        "deepseek-llm",
        PreTokenizer(
            (
                r"[\r\n]",
                rf"\s?[{_DEEPSEEK_CLASS}]+",
                r"\s?[!-/:-~！-／：-～‘-‟、。]+",
                r"\s+$",
                _CJK_AND_BETWEEN,
                r"\p{N}+",
            )
        ),
    ),
    (
        "chameleon",
        PreTokenizer(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            conventions=_ADD_BOS,
        ),
    ),
)

# Of vocabularies that are written in characters.
_LINES = r"[^\n]+|[\n]+"
_IN_CHARACTERS: tuple[tuple[str, PreTokenizer], ...] = (
    (
        "gemma4 granite-embed-multi-311m",
        PreTokenizer(
            (_LINES,),
            in_characters=True,
            conventions=_WRITE_SPACES | _WHOLE_NEWLINES | _ADD_BOS,
            always=_ADD_BOS,
        ),
    ),
    ("sarvam-moe", PreTokenizer((_LINES,), in_characters=True, conventions=_WRITE_SPACES)),
    (
        "mmbert",
        PreTokenizer(
            (_LINES,),
            in_characters=True,
            conventions=_WRITE_SPACES | _WHOLE_NEWLINES | Convention.BEGIN_WITH_SPACE,
        ),
    ),
    ("whitespace", PreTokenizer((r"\S+",), in_characters=True, conventions=Convention.DROP_SPACES)),
)

PRE_TOKENIZERS = {name: pre for names, pre in (*_FAMILIES, *_IN_CHARACTERS) for name in names.split()}


@cache
def word_cutter(name: str) -> WordCutter:
    """Of one of PRE_TOKENIZERS."""
    pre_tokenizer = PRE_TOKENIZERS[name]
    return WordCutter(
        [*pre_tokenizer.patterns], pre_tokenizer.digits_in_threes, pre_tokenizer.numbers_in_threes
    )
