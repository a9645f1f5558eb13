"""All families. A template's is the first that recognizes it."""

from __future__ import annotations

from puna.chat.replies.families.family import Family
from puna.chat.replies.families.harmony import HARMONY
from puna.chat.replies.families.hermes import HERMES
from puna.chat.replies.families.plain import PLAIN

FAMILIES = {family.name: family for family in (HARMONY, HERMES, PLAIN)}


def family_of(source: str) -> Family:
    """Of the source of a chat template."""
    return next((family for family in FAMILIES.values() if family.recognizes(source)), PLAIN)
