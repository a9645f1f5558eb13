"""Tokens that mean something by their name alone.

Converters often forget to mark such tokens as control tokens, or to say which of them end a reply. llama.cpp
repairs that by name; models are published to work with it, so the same names have the same effects here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from puna.tokenizer.kinds import TokenKind

END_OF_GENERATION = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)
# Of these the first one in the vocabulary counts, and only if metadata names none.
FILL_IN_THE_MIDDLE = {
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
ENDS_FILL_IN = ("fim_pad", "fim_rep", "fim_sep")
# The harmony format puts these into the text that a client must see.
SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


Find = Callable[[str], int | None]


def mark_by_name(find: Find, kinds: bytearray, named: Mapping[str, int | None]) -> set[int]:
    """Corrects `kinds` in place and returns the tokens that end a generation.

    `find`: the token of a text. `named`: the ids that metadata gives: eos, eot, eom and the keys of
    FILL_IN_THE_MIDDLE.
    """
    fill_in = {role: named.get(role) for role in FILL_IN_THE_MIDDLE}
    for role, names in FILL_IN_THE_MIDDLE.items():
        if fill_in[role] is None:
            fill_in[role] = next((token for name in names if (token := find(name)) is not None), None)
            _mark(kinds, fill_in[role], TokenKind.CONTROL)
    ends = {fill_in[role] for role in ENDS_FILL_IN}
    for name in END_OF_GENERATION:
        _mark(kinds, find(name), TokenKind.CONTROL)
        ends.add(find(name))
    for name in SHOWN:
        _mark(kinds, find(name), TokenKind.USER_DEFINED)
    ends |= {named.get(role) for role in ("eos", "eot", "eom")}
    _drop_false_ends(find, kinds, ends)
    return {token for token in ends if token is not None}


def _drop_false_ends(find: Find, kinds: bytearray, ends: set[int | None]) -> None:
    """Where a format has a later end, its separators must not stop the reply."""

    def has(name: str) -> bool:
        token = find(name)
        return token is not None and token in ends

    def drop(name: str, kind: TokenKind) -> None:
        ends.discard(find(name))
        _mark(kinds, find(name), kind)

    called = has("<|call|>") or has("<|calls|>")
    if has("<|end|>") and called and (has("<|return|>") or has("<|flush|>")):
        drop("<|end|>", TokenKind.USER_DEFINED)
    if has("<|tool_response>") and has("</s>"):
        drop("</s>", TokenKind.NORMAL)


def _mark(kinds: bytearray, token: int | None, kind: TokenKind) -> None:
    if token is not None:
        kinds[token] = kind
