"""Text in which some tags do not occur, as terminals between which llguidance need not search for their ends.

A terminal is as long as it can be. So text is cut in front of each character with which a tag begins: one
terminal is what has no such character, another begins with one and goes on as no tag does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from puna.engine.grammars.slices import BEHIND_BRACKET, BEHIND_NEXT

_LONGEST = 64
"""Of what is looked at of a tag."""


def patterns_without(tags: Sequence[str]) -> list[str]:
    """Regular expressions: text is a sequence of what matches one of them. tags: not empty."""
    tags = [tag[:_LONGEST] for tag in tags]
    first = "".join(sorted({tag[0] for tag in tags}))
    patterns = [f"[^{re.escape(first)}]+"]
    for char in first:
        if char not in tags:
            rests = [tag[1:] for tag in tags if tag.startswith(char)]
            patterns.append(f"{re.escape(char)}({_other_than(rests, first, BEHIND_BRACKET)})")
    return patterns


def _other_than(tags: Sequence[str], first: str, usual: str) -> str:
    """What begins with none of the tags, or is less than one, up to the next of the characters `first`.

    usual: characters that have branches of their own, so that the others are those of a slice.
    """
    told_apart = sorted({*usual, *(tag[0] for tag in tags)} - set(first))
    more = f"[^{re.escape(first)}]*"
    branches = ["", f"[^{re.escape(first + ''.join(told_apart))}]{more}"]
    for char in told_apart:
        rests = [tag[1:] for tag in tags if tag.startswith(char)]
        if "" not in rests:
            branches.append(f"{re.escape(char)}({_other_than(rests, first, BEHIND_NEXT) if rests else more})")
    return "|".join(branches)
