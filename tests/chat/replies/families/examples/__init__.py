"""Real replies of every family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.chat.replies.families.examples import json_like
from tests.chat.replies.families.examples.example import Example

EXAMPLES: Mapping[str, Sequence[Example]] = {
    "hermes": json_like.HERMES,
    "smollm2": json_like.SMOLLM2,
    "granite3": json_like.GRANITE3,
    "llama": json_like.LLAMA,
    "llama-pythonic": json_like.LLAMA_PYTHONIC,
    "mistral": json_like.MISTRAL,
    "mistral-ids": json_like.MISTRAL_IDS,
    "ministral": json_like.MINISTRAL,
}
"""By the family's name."""
