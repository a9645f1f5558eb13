"""All families. A template's is the first that recognizes it."""

from __future__ import annotations

from puna.chat.replies.families.family import Family
from puna.chat.replies.families.gemma import FUNCTION_GEMMA, GEMMA4
from puna.chat.replies.families.glm import GLM
from puna.chat.replies.families.harmony import HARMONY
from puna.chat.replies.families.in_json.cohere import COHERE
from puna.chat.replies.families.in_json.deepseek import DEEPSEEK, DEEPSEEK_FENCED
from puna.chat.replies.families.in_json.hermes import HERMES
from puna.chat.replies.families.in_json.json_lists import GRANITE3, SMOLLM2
from puna.chat.replies.families.in_json.kimi import KIMI
from puna.chat.replies.families.in_json.llama import LLAMA, LLAMA_PYTHONIC
from puna.chat.replies.families.in_json.mistral import MINISTRAL, MISTRAL, MISTRAL_IDS
from puna.chat.replies.families.lfm2 import LFM2
from puna.chat.replies.families.olmo3 import OLMO3
from puna.chat.replies.families.parameter_tags import MINIMAX, QWEN_CODER, SEED_OSS
from puna.chat.replies.families.plain import PLAIN

_ALL = (
    HARMONY,
    SEED_OSS,
    MINIMAX,
    QWEN_CODER,
    GLM,
    DEEPSEEK_FENCED,
    DEEPSEEK,
    KIMI,
    COHERE,
    GEMMA4,
    FUNCTION_GEMMA,
    LFM2,
    OLMO3,
    MISTRAL_IDS,
    MINISTRAL,
    MISTRAL,
    GRANITE3,
    SMOLLM2,
    HERMES,
    LLAMA_PYTHONIC,
    LLAMA,
    PLAIN,
)
FAMILIES = {family.name: family for family in _ALL}


def family_of(source: str) -> Family:
    """Of the source of a chat template."""
    return next((family for family in FAMILIES.values() if family.recognizes(source)), PLAIN)
