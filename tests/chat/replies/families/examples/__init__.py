"""Real replies of every family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.in_json.json_format import json_family
from puna.chat.replies.families.registry import FAMILIES
from tests.chat.replies.families.examples import (
    channels,
    cohere,
    deepseek,
    gemma,
    json_like,
    python_like,
    text_like,
)
from tests.chat.replies.families.examples.example import Example

TESTED: Mapping[str, Family] = {
    **FAMILIES,
    "json": json_family(JsonFormat()),
    "json-tagged": json_family(
        JsonFormat(begin="<TOOLCALL>", close="</TOOLCALL>", is_list=True, key="parameters")
    ),
    "json-behind-text": json_family(JsonFormat(begin="Action: ```json", is_list=True, name="tool_name")),
}
"""All families, and JSON as templates may write it."""

EXAMPLES: Mapping[str, Sequence[Example]] = {
    "harmony": channels.HARMONY,
    "gemma4": gemma.GEMMA4,
    "functiongemma": gemma.FUNCTION_GEMMA,
    "cohere": cohere.COHERE,
    "qwen3-coder": text_like.QWEN_CODER,
    "seed-oss": text_like.SEED_OSS,
    "minimax-m2": text_like.MINIMAX,
    "kimi-k2": deepseek.KIMI,
    "glm-4.7": text_like.GLM,
    "deepseek3": deepseek.DEEPSEEK,
    "cogito": deepseek.DEEPSEEK_FENCED,
    "lfm2": python_like.LFM2,
    "olmo3": python_like.OLMO3,
    "hermes": json_like.HERMES,
    "smollm2": json_like.SMOLLM2,
    "granite3": json_like.GRANITE3,
    "llama": json_like.LLAMA,
    "llama-pythonic": json_like.LLAMA_PYTHONIC,
    "mistral": json_like.MISTRAL,
    "mistral-ids": json_like.MISTRAL_IDS,
    "ministral": json_like.MINISTRAL,
    "json": json_like.JSON,
    "json-tagged": json_like.JSON_TAGGED,
    "json-behind-text": json_like.JSON_BEHIND_TEXT,
}
"""By the family's name."""
