"""Texts that break tokenizers, and a strategy that makes more of them."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from tests.tokenizer.vocabularies import SPECIAL

HARD_TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "Hello, world! It's 3.14159, isn't IT'S? They'LL've we'd 'tis O'Neill's 's 'S 'ſ'",
    "a  b   c    d     e\t\tf \t g\n\nh \n i\r\nj\r\r\nk   \n   l  ",
    "   leading and trailing   ",
    "\u00a0nbsp\u00a0\u2003em\u3000ideographic\u2028line\u2029paragraph\u0085next\x0bvt\x0cff\x1cfs",
    "0 1 12 123 1234 12345 123456 1234567 1,234,567.89 ٣٤٥ ½ Ⅷ ² 一二三 １２３",
    "naïve café e\u0301 n\u0303 Å A\u030a ǅ ﬁ ß ẞ İ ı Ω Ж ʰ",
    "日本語のテキスト、中文。한국어 ㄱㄴㄷ 漢字かなカナー「引用」",
    "العربية: مرحبًا بالعالم ١٢٣، עברית שָׁלוֹם हिन्दी क्षत्रिय ไทยภาษา বাংলা",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇧🇴 ☺️ 🙂🙂 1️⃣",
    "\x00\x01\x02\x07\x1b[31m\x7f\ufeff\u200b\u200d\u2060\ue000\ufffd\u0378\U000e0001\U0010ffff",
    "<|im_start|>user\n  hi <|im_end|>\n<|im_start|><|im_start|> <unk><tool><tool><tool> <|im <|im_end|><|im",
    "yellow mellow ellow    ellow ñandú Ñandú end|><| <tool <<tool>> <|endoftext|>    x",
    "def f(x: int) -> str:\n\treturn f'{x!r:>{10}}' # ok\n\n\nif (a[0]&&!b||c^d)==~e: i+=1; //..\\\\ */\n",
    "$100 +5% <=> ^~|`@#_-=+*/ (a)[b]{c} “quoted” ‘x’ — … ¿¡ € ¥ © °",
    "x" * 3000,
    "ab" * 500 + " " * 700 + "1" * 301 + "\n" * 40,
    "https://example.com/a_b-c?d=e&f=%20#g user@example.com C:\\dir\\file.txt",
    "IMGIMGABZ <sentinel:12> \u2581 \u2581\u2581x <0x41>",
]
_WORDS = """
's 'S 'T 're 'RE 'Ve 'll 'd' ' a B hello World é e\u0301 日本 語 العربية हि 👩‍👩 1 12 123 1234567 ½ Ж µ
! ?! ... $ += <= ^ ~| ` _ - ( ) [ ] “ ” — 。 ， @ # \\ / // K ſ Ａ １ 𐐀 𝟘 ▁ ▁▁ <s> </s> <0x0A>
"""
_SPACES = (" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x85", "\u00a0", "\u3000", "\u2028")
PIECES = [*SPECIAL, *_WORDS.split(), *_SPACES, "\x00", "\u200d", "\ufffd", "\u0378"]


def _is_old(char: str) -> bool:
    """Assigned in Unicode 14: newer characters are letters or not, depending on the tables at hand."""
    return unicodedata.category(char) not in ("Cn", "Cs")


texts = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(codec="utf-8").filter(_is_old), max_size=3), max_size=25
).map("".join)


# Scripts, marks, signs and emoji; halves of surrogate pairs are no text.
_ALPHABETS = [
    [char for char in map(chr, range(begin, end)) if _is_old(char)]
    for begin, end in (
        *((0x0, 0x80), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x700), (0x900, 0xE00)),
        *((0x2000, 0x2070), (0x2580, 0x25A0), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)),
        *((0xFE00, 0xFFFF), (0x1F300, 0x1FAFF), (0xE0000, 0xE0100), (0x10000, 0x110000)),
    )
]


def random_texts(tokens: Sequence[str], count: int) -> Iterator[str]:
    """Of one alphabet, of all mixed, decomposed, of tokens, of tokens over and over, of random bytes, and of
    pieces that rules are about.
    """
    dice = random.Random(1)
    for _ in range(count):
        length = dice.choice([1, 2, 3, 5, 10, 30, 100])
        kind = dice.randrange(7)
        alphabet = dice.choice(_ALPHABETS)
        mixed = "".join(dice.choice(dice.choice(_ALPHABETS)) for _ in range(length))
        if kind == 0:
            yield "".join(dice.choices(alphabet, k=length))
        elif kind == 1:
            yield mixed
        elif kind == 2:
            yield "".join(filter(_is_old, unicodedata.normalize("NFKD", mixed)))
        elif kind == 3:
            yield "".join(dice.choices(tokens, k=length))
        elif kind == 4:
            yield dice.choice([*tokens[:2000], " ", "\n", *PIECES]) * length
        elif kind == 5:
            yield "".join(dice.choices(PIECES, k=length))
        else:
            yield dice.randbytes(length).decode(errors="replace")
