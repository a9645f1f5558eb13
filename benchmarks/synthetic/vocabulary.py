"""A byte-level BPE of any size: all bytes, pairs of letters, and as many pairs of pairs as fit."""

from __future__ import annotations

import itertools
import string

from gguf import GGUFWriter

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WORDS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("system", "user", "assistant"),
)
"""Of chat templates: a token each, as in real vocabularies, but part of the text."""


def add_vocabulary(writer: GGUFWriter, size: int, pre_tokenizer: str) -> None:
    """Ends with SPECIAL; a text ends with the last of these."""
    letters = string.ascii_lowercase
    tokens = [_shown(byte) for byte in range(256)]
    pairs = [a + b for a in letters for b in letters]
    num_quads = size - len(tokens) - len(pairs) - len(_WORDS) - len(SPECIAL)
    quads = list(itertools.islice(itertools.product(pairs, pairs), num_quads))
    merges = [f"{a} {b}" for a, b in itertools.chain(pairs, quads)]
    tokens += [*pairs, *(a + b for a, b in quads)]
    num_words = len(tokens)
    num_unused = size - num_words - len(_WORDS) - len(SPECIAL)
    tokens += [f"<|unused_{i}|>" for i in range(num_unused)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list([*tokens, *_WORDS, *SPECIAL])
    writer.add_token_types([1] * num_words + [5] * num_unused + [4] * len(_WORDS) + [3] * len(SPECIAL))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(size - 3)
    writer.add_eos_token_id(size - 1)
    writer.add_add_bos_token(False)


def _shown(byte: int) -> str:
    """The character that stands for a byte in a byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [b for b in range(256) if b not in printable].index(byte))
