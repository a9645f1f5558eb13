"""Renderers and parsers that a model's configuration names, as Ollama's library has them.

Ollama writes each of them in code. Here the Jinja template in the model's file does what a renderer does, and
a family of replies what a parser does.
"""

from __future__ import annotations

from typing import NamedTuple

from puna.chat.errors import TemplateError
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.registry import FAMILIES


class NamedParser(NamedTuple):
    """What the replies that it reads may have; family: in puna.chat.replies.families."""

    family: str
    tools: bool = True
    thinking: bool = False


PARSERS = {
    "cogito": NamedParser("cogito", thinking=True),
    "cohere": NamedParser("cohere", thinking=True),
    "deepseek3": NamedParser("deepseek3", thinking=True),
    "functiongemma": NamedParser("functiongemma"),
    "gemma4": NamedParser("gemma4", thinking=True),
    "gemma4-no-thinking": NamedParser("gemma4"),
    "glm-4.7": NamedParser("glm-4.7", thinking=True),
    "glm-ocr": NamedParser("plain", tools=False),
    "harmony": NamedParser("harmony", thinking=True),
    "laguna": NamedParser("glm-4.7", thinking=True),
    "lfm2": NamedParser("lfm2"),
    "lfm2-thinking": NamedParser("lfm2", thinking=True),
    "ministral": NamedParser("ministral"),
    "nemotron-3-nano": NamedParser("qwen3-coder", thinking=True),
    "nemotron-3.5-nano": NamedParser("qwen3-coder", thinking=True),
    "olmo3": NamedParser("olmo3"),
    "olmo3-think": NamedParser("olmo3", tools=False, thinking=True),
    "ornith": NamedParser("qwen3-coder", thinking=True),
    "passthrough": NamedParser("plain", tools=False),
    "poolside-v1": NamedParser("glm-4.7", thinking=True),
    "qwen3": NamedParser("hermes"),
    "qwen3-coder": NamedParser("qwen3-coder"),
    "qwen3-thinking": NamedParser("hermes", thinking=True),
    "qwen3-vl-instruct": NamedParser("hermes"),
    "qwen3-vl-thinking": NamedParser("hermes", thinking=True),
    "qwen3.5": NamedParser("qwen3-coder", thinking=True),
}
RENDERERS = frozenset(
    (
        "cogito",
        "cohere",
        "deepseek3.1",
        "functiongemma",
        "gemma4",
        "gemma4-large",
        "gemma4-small",
        "glm-4.7",
        "glm-ocr",
        "laguna",
        "lfm2",
        "lfm2-thinking",
        "nemotron-3-nano",
        "nemotron-3.5-nano",
        "olmo3",
        "olmo3-32b-think",
        "olmo3-think",
        "olmo3.1",
        "ornith",
        "poolside-v1",
        "qwen3-coder",
        "qwen3-vl-instruct",
        "qwen3-vl-thinking",
        "qwen3.5",
        "qwen3.8",
    )
)


def parser_family(name: str) -> Family:
    """Raises TemplateError for a parser that is not known, or whose family puna does not read yet."""
    if name not in PARSERS:
        raise TemplateError(f'unknown parser "{name}"')
    if (family := FAMILIES.get(PARSERS[name].family)) is None:
        raise TemplateError(f'the parser "{name}" is not supported yet')
    return family
