from __future__ import annotations

import pytest

from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.templates.template import ChatTemplate
from puna.chat.tools import Tool, ToolFunction, tool_variables
from tests.chat.go.pairs import PAIRS, WITH_TOOLS

pytestmark = pytest.mark.unit

SCHEMA = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
TOOLS = [tool_variables(Tool(ToolFunction(name, "tells", SCHEMA))) for name in ("weather", "time")]
CALL = ToolCall(CalledFunction("weather", {"city": "Köln", "at": [1, None, {"z": True, "a": 0.5}]}))
TURNS = [Message("user", "u1"), Message("assistant", "a1"), Message("user", "u2 é")]
SYSTEM = Message("system", "Be brief.")
ROUND = [TURNS[0], Message("assistant", tool_calls=[CALL]), Message("tool", "sun\n", tool_name="weather")]


def both(family: str, messages: list[Message], **variables) -> tuple[str, str]:
    go, jinja = PAIRS[family]
    template = ChatTemplate(jinja, bos_token="", eos_token="")
    return GoChatTemplate(go).render(messages, **variables), template.render(messages, **variables)


@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("messages", [TURNS[:1], [SYSTEM, TURNS[0]], TURNS, [SYSTEM, *TURNS]])
def test_both_languages_write_the_same_conversation(family, messages):
    go, jinja = both(family, messages)
    assert go == jinja
    assert "u1" in go


@pytest.mark.parametrize("family", WITH_TOOLS)
@pytest.mark.parametrize("messages", [[SYSTEM, *TURNS], ROUND, [SYSTEM, *ROUND, *TURNS[1:]]])
def test_both_languages_write_the_same_tools_calls_and_results(family, messages):
    go, jinja = both(family, messages, tools=TOOLS)
    assert go == jinja
    assert '"name":"time"' in go or messages == ROUND


@pytest.mark.parametrize("enabled", [True, False])
def test_both_languages_say_the_same_of_thinking(enabled):
    go, jinja = both("chatml", TURNS, enable_thinking=enabled)
    assert go == jinja
    assert ("</think>" in go) != enabled


@pytest.mark.parametrize("family", PAIRS)
def test_both_templates_are_of_one_family(family):
    go, jinja = PAIRS[family]
    assert GoChatTemplate(go).family is ChatTemplate(jinja, bos_token="", eos_token="").family
