"""Conversations and templates that do not take them as they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.conversation.normalising import Rendered, render_any, with_known_roles
from puna.chat.errors import TemplateError
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.templates.template import ChatTemplate

pytestmark = pytest.mark.unit

# What public templates do, each as short as it can be.
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
ALTERNATES = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + ALTERNATES
)
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
DROPS_LATER_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}"
    "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
LAST_SYSTEM_WINS = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endif %}{% endfor %}{{ ns.system }}{% for m in messages %}"
    "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
NEEDS_USER = (
    "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
    "{{ raise_exception('No user query found in messages.') }}{% endif %}" + PLAIN
)
CALLS = (
    "{% for m in messages %}{% if m.tool_calls | length > 1 %}{{ raise_exception('single tool-calls') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{% if c.id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}"
    "{{ c.function.name }} {{ c.id }}{% endfor %}{% if m.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'assistant' %}{{ raise_exception('no previous call') }}"
    "{% endif %}of {{ m.tool_call_id }}{% endif %}{% endfor %}"
)
NO_TOOLS = (
    "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
STRICT = (ALTERNATES, NO_SYSTEM, SYSTEM_FIRST, DROPS_LATER_SYSTEM, LAST_SYSTEM_WINS, NEEDS_USER)

S1, S2 = Message("system", "Be wise."), Message("system", "Be brief.")
U1, U2 = Message("user", "What?"), Message("user", "And?")
A1, A2 = Message("assistant", "This."), Message("assistant", "That.")


def rendered(source: str, messages: list[Message], **options: bool) -> Rendered:
    template = ChatTemplate(source, bos_token="", eos_token="")
    known = with_known_roles(messages, source)
    return render_any(known, template.render, **options)


def text(source: str, *messages: Message) -> str:
    return rendered(source, list(messages)).text


def called(*ids: str) -> Message:
    return Message("assistant", "Look:", tool_calls=[ToolCall(CalledFunction("f", {"a": 1}), i) for i in ids])


def result(call_id: str, content: str) -> Message:
    return Message("tool", content, tool_name="f", tool_call_id=call_id)


@pytest.mark.parametrize("source", STRICT)
def test_what_a_template_takes_stays_as_it_is(source):
    conversation = [U1, A1, U2] if source == NO_SYSTEM else [S1, U1, A1, U2]
    assert rendered(source, conversation).repairs == []


def test_a_template_that_takes_runs_of_one_role_gets_them():
    assert text(PLAIN, U1, U2, A1, S1) == "<user>What?<user>And?<assistant>This.<system>Be wise."


@pytest.mark.parametrize(
    ("source", "messages", "expected"),
    [
        (ALTERNATES, [S1, S2, U1], "Be wise.\n\nBe brief.\n<user>What?"),
        (ALTERNATES, [U1, U2, A1, A2], "<user>What?\n\nAnd?<assistant>This.\n\nThat."),
        (ALTERNATES, [S1, U1, A1, S2, U2], "Be wise.\n<user>What?<assistant>This.<user>Be brief.\n\nAnd?"),
        (ALTERNATES, [A1, U1], "<user><assistant>This.<user>What?"),
        (NO_SYSTEM, [S1, U1], "<user>Be wise.\n\nWhat?"),
        (NO_SYSTEM, [S1, U1, A1, S2, U2], "<user>Be wise.\n\nWhat?<assistant>This.<user>Be brief.\n\nAnd?"),
        (SYSTEM_FIRST, [S1, U1, S2], "<system>Be wise.<user>What?<user>Be brief."),
        (
            SYSTEM_FIRST,
            [S1, U1, U2, A1, S2],
            "<system>Be wise.<user>What?<user>And?<assistant>This.<user>Be brief.",
        ),
        (DROPS_LATER_SYSTEM, [S1, U1, S2, U2], "Be wise.<user>What?<user>Be brief.<user>And?"),
        (LAST_SYSTEM_WINS, [S1, U1, S2, U2], "Be wise.<user>What?<user>Be brief.<user>And?"),
        (LAST_SYSTEM_WINS, [S1, S2, U1], "Be wise.\n\nBe brief.<user>What?"),
        (NEEDS_USER, [S1], "<system>Be wise.<user>"),
    ],
)
def test_otherwise_as_little_is_changed_as_possible(source, messages, expected):
    assert text(source, *messages) == expected


def test_developers_are_the_system_where_a_template_does_not_know_them():
    developer = Message("developer", "Be wise.")
    assert text(PLAIN, developer, U1) == "<system>Be wise.<user>What?"
    knows = "{# developer #}" + PLAIN
    assert text(knows, developer, U1) == "<developer>Be wise.<user>What?"
    refuses = "{% if messages[0].role == 'developer' %}{{ raise_exception('') }}{% endif %}" + PLAIN
    assert text(refuses, developer, U1) == "<system>Be wise.<user>What?"


def test_calls_and_results_are_told_as_the_template_can():
    parallel = [U1, called("call_1", "call_2"), result("call_2", "Rain there."), result("call_1", "Sunny.")]
    said = text(CALLS, *parallel)
    ids = re.findall(r"[:>]f (\w{9})", said)
    assert said == (
        f"<user>What?<assistant>Look:f {ids[0]}<tool>Sunny.of {ids[0]}"
        f"<assistant>f {ids[1]}<tool>Rain there.of {ids[1]}"
    )
    assert text(CALLS, U1, A1, U2, result("c", "Sunny.")) == (
        "<user>What?<assistant>This.<user>And?<user>Result of f:\nSunny."
    )
    assert text(NO_TOOLS, U1, called("c"), result("c", "Sunny.")) == (
        '<user>What?<assistant>Look:\n\n{"name":"f","arguments":{"a":1}}<user>Result of f:\nSunny.'
    )


def test_calls_that_are_left_out_beside_text_are_apart_and_else_told():
    beside = (
        "{% for m in messages %}<{{ m.role }}>{% if m.content %}{{ m.content }}{% else %}"
        "{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endif %}{% endfor %}"
    )
    call = Message("assistant", "Look:", tool_calls=[ToolCall(CalledFunction("weather"), "c")])
    said = [U1, call, Message("tool", "Sunny.", tool_call_id="c")]
    assert text(beside, *said) == "<user>What?<assistant>Look:<assistant>weather<tool>Sunny."
    again = [*said, Message("assistant", tool_calls=call.tool_calls)]
    assert text(beside, *again).count("weather") == 2
    assert text(PLAIN, *said) == (
        '<user>What?<assistant>Look:\n\n{"name":"weather","arguments":{}}<user>Result:\nSunny.'
    )


def test_what_changes_much_is_left_as_soon_as_it_is_not_needed():
    call = Message("assistant", tool_calls=[ToolCall(CalledFunction("weather"), "c")])
    said = [S1, U1, call, Message("tool", "Sunny.", tool_call_id="c"), S2]
    assert text(DROPS_LATER_SYSTEM, *said) == (
        'Be wise.<user>What?<assistant>{"name":"weather","arguments":{}}<user>Result:\nSunny.<user>Be brief.'
    )


def test_a_user_who_speaks_behind_results_gets_an_answer_before():
    source = (
        "{% for m in messages %}{% if m.role == 'user' and not loop.first and "
        "messages[loop.index0 - 1].role != 'assistant' %}{{ raise_exception('alternate') }}{% endif %}"
        "{% if m.role == 'assistant' and not m.content %}{{ raise_exception('must have a string') }}"
        "{% endif %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
        "{% endfor %}{% endfor %}"
    )
    assert text(source, U1, called("c"), result("c", "Sunny."), U2) == (
        "<user>What?<assistant>Look:f<tool>Sunny.<assistant> <user>And?"
    )
    assert text(source, U1, Message("assistant"), U2) == "<user>What?\n\nAnd?"


def test_no_question_is_made_up_for_an_answer_whose_question_was_cut():
    with pytest.raises(TemplateError, match="alternate"):
        rendered(ALTERNATES, [S1, A1, U1], may_begin=False)


def test_an_error_that_nothing_helps_against_is_the_first_one():
    with pytest.raises(TemplateError, match="always 4"):
        text("{{ raise_exception('always ' ~ messages | length) }}", U1, A1, S1, U2)


@given(
    source=st.sampled_from(STRICT),
    roles=st.lists(st.sampled_from(["system", "user", "assistant", "developer"]), min_size=1, max_size=8),
)
def test_no_template_refuses_a_conversation_or_leaves_any_of_it_out(source, roles):
    messages = [Message(role, f"content {n};") for n, role in enumerate(roles)]
    said = text(source, *messages)
    assert all(message.content in said for message in messages)


@given(source=st.sampled_from(STRICT), num_turns=st.integers(1, 4))
def test_the_prompt_of_a_conversation_that_goes_on_begins_as_before(source, num_turns):
    """Of a coding agent: the system speaks within it, the user in several messages."""
    turns = [
        [Message("user", f"u{n};"), Message("system", f"s{n};"), Message("assistant", f"a{n};")]
        for n in range(5)
    ]
    short = [S1, *(message for turn in turns[:num_turns] for message in turn)]
    longer = [*short, *turns[num_turns]]
    assert text(source, *longer).startswith(text(source, *short))
