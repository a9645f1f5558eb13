"""The masks of a step: which tokens the grammar of a reply allows."""

from __future__ import annotations

from collections.abc import Sequence as Items

from puna._native import TokenMask
from puna.engine.grammars.reply_grammar import GrammarError, ReplyGrammar


def compute_masks(reply: ReplyGrammar, drafts: Items[int]) -> list[TokenMask]:
    """For the next token, and for the one behind each draft.

    On the engine's thread: a mask takes some 15 us, less than what it costs to take a core from the threads
    that compute the step. Whatever goes wrong is told by the masks, and ends that reply alone.
    """
    masks = reply.masks(1 + len(drafts))
    try:
        reply.compute(drafts, masks)
    except GrammarError as error:
        _fail(masks, str(error))
    except BaseException as error:  # llguidance's panics are no Exception
        _fail(masks, f"its mask cannot be computed: {error!r}"[:500])
    return masks


def _fail(masks: Items[TokenMask], reason: str) -> None:
    for mask in masks:
        mask.fail(reason)
