"""Calls that a template writes into the prompt are written as the model is to write them: its family reads
them, and the grammar lets them through.
"""

from __future__ import annotations

import pytest
from llguidance import LLMatcher

from puna.chat.grammars.task import ReplyTask
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.replies.pieces import Call, Piece
from puna.chat.replies.tagged import Reading
from puna.chat.templates.template import ChatTemplate
from puna.chat.tools import tool_variables
from tests.chat.replies.families.examples.example import ODD, WEATHER
from tests.chat.replies.families.templates import TEMPLATES
from tests.chat.replies.families.tools import TOOLS
from tests.chat.replies.sampling import byte_vocabulary, grammar_of

pytestmark = pytest.mark.unit

ASKS = Message("user", "How is the weather?")
PLAIN_ODD = Call(ODD.name, {**ODD.arguments, "city": 'é 😀 \\ "b"\n\''})


def written(template: ChatTemplate, end: str, *calls: Call, thinking: str = "") -> str:
    """The turn of these calls, as the template writes it."""
    tool_calls = [ToolCall(CalledFunction(call.name, call.arguments), id="aBc456789") for call in calls]
    answer = Message("assistant", tool_calls=tool_calls, thinking=thinking or None)
    tools = [tool_variables(tool) for tool in TOOLS]
    prompt = template.render([ASKS], tools=tools)
    whole = template.render([ASKS, answer], tools=tools, add_generation_prompt=False)
    assert whole.startswith(prompt)
    turn, found, _ = whole.removeprefix(prompt).partition(end)
    assert found
    return turn


@pytest.mark.parametrize(
    ("family", "calls"),
    [
        *((family, [PLAIN_ODD, WEATHER]) for family in TEMPLATES if family != "harmony"),
        *((family, [WEATHER]) for family in TEMPLATES),
    ],
)
def test_calls_are_read_as_they_are_written(family: str, calls: list[Call]) -> None:
    source, end = TEMPLATES[family]
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert template.family.name == family
    turn = written(template, end, *calls)
    parser = template.family.new_parser(Reading(tools=TOOLS))
    assert parser.add(turn) + parser.flush() == Piece(calls=tuple(calls))
    vocabulary = byte_vocabulary()
    matcher = LLMatcher(
        vocabulary.matcher_tokenizer, grammar_of(template.family, ReplyTask(tools=TOOLS), vocabulary)
    )
    tokens = list(turn.encode())
    assert matcher.try_consume_tokens(tokens) == len(tokens)
    assert matcher.is_accepting()


def test_thoughts_between_calls_are_written_as_they_are_read() -> None:
    template = ChatTemplate(TEMPLATES["hermes"][0], bos_token="", eos_token="")
    turn = written(template, "<|im_end|>", WEATHER, thinking="Hm.")
    parser = template.family.new_parser(Reading(tools=TOOLS, thinking=template.family.thinking))
    assert parser.add(turn) + parser.flush() == Piece("Hm.\n", "", (WEATHER,))


@pytest.mark.parametrize("mark", ["<|tool_call|><|start_of_role|>", "<|tool_list_start|>"])
def test_a_template_that_leaves_calls_out_gets_them_as_what_is_said(mark: str) -> None:
    source = f"{{# {mark} tools #}}{{% for m in messages %}}{{{{ m.role + m.content }}}};{{% endfor %}}"
    template = ChatTemplate(source, bos_token="", eos_token="")
    call = ToolCall(CalledFunction(PLAIN_ODD.name, PLAIN_ODD.arguments))
    text = template.render([ASKS, Message("assistant", "Well: ", tool_calls=[call])])
    parser = template.family.new_parser(Reading(tools=TOOLS))
    turn = text.removeprefix(f"user{ASKS.content};assistant").removesuffix(";")
    assert parser.add(turn) + parser.flush() == Piece("", "Well:", (PLAIN_ODD,))
