"""Schemas that multiply, or are nested without end, are refused or written soon."""

from __future__ import annotations

from contextlib import suppress

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.registry import FAMILIES
from puna.chat.tools import Tool, ToolFunction
from tests.chat.replies.sampling import byte_vocabulary, grammar_of

pytestmark = pytest.mark.unit


def offer(family: str, schema) -> str:
    function = ToolFunction("f", parameters={"properties": {"a": schema, "b": schema}, **schema})
    return grammar_of(FAMILIES[family], ReplyTask(tools=[Tool(function)]), byte_vocabulary())


@pytest.mark.parametrize("family", ["qwen3-coder", "glm-4.7", "gemma4", "lfm2"])
@pytest.mark.parametrize("leaf", [{"anyOf": []}, {"enum": []}, {"type": []}, {"type": "string"}])
def test_references_that_multiply(family: str, leaf) -> None:
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 50} for n in range(12)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d12": leaf}}
    with suppress(PromptError):
        assert offer(family, schema)


@pytest.mark.parametrize("family", ["qwen3-coder", "gemma4", "lfm2"])
def test_nested_without_end(family: str) -> None:
    schema = {"type": "string"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(PromptError, match="deep"):
        offer(family, schema)
