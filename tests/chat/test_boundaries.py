"""Where later prompts are likely to part from a conversation's prompt."""

from __future__ import annotations

import pytest

from puna.chat.messages import Message
from puna.chat.prompt import PromptRequest
from puna.chat.prompt_building import build_prompts
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.templates.template import ChatTemplate
from tests.api.ggufs import CHATML, THINKING
from tests.chat.go.pairs import PAIRS
from tests.chat.test_prompt import TOKENIZER, WITH_BOS_AND_EOS, turn

pytestmark = pytest.mark.unit

SYSTEM = Message("system", "You do as you are told, and say so in the end.")
ASKED = Message("user", "What is the weather like in Wellington?")
CALL = Message("assistant", "I call the weather service for this.")
RESULT = Message("tool", "Wind, as ever, from all sides at once.")

# As Qwen3's: replies behind the user's latest message have a place for thoughts, earlier ones have not.
FORGETS = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant:{% endif %}"
)
ASKS_NOT = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
ORDERLY = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('no replies') }}{% endif %}"
    "{% endfor %}" + CHATML
)


def texts(source: str, *messages: Message, tokenizer=TOKENIZER, **fields) -> list[str]:
    """The prompt up to each of its boundaries."""
    is_go = "{%" not in source
    template = GoChatTemplate(source) if is_go else ChatTemplate(source, bos_token="b", eos_token="e")
    request = PromptRequest(
        messages=list(messages), **{"context_length": 4096, "with_boundaries": True, **fields}
    )
    (prompt,) = build_prompts(request, template, tokenizer)
    return [tokenizer.decode(prompt.tokens[:position]) for position in prompt.boundaries]


def turns(*messages: Message) -> str:
    return "".join(turn(message.role, message.content) for message in messages)


def test_a_conversation_parts_behind_the_system_and_where_the_reply_begins():
    assert texts(CHATML, SYSTEM, ASKED) == [turns(SYSTEM), turns(SYSTEM, ASKED)]
    assert texts(CHATML, ASKED) == [turns(ASKED)]


def test_replies_that_will_be_written_in_another_way_part_before_the_first_of_them():
    boundaries = texts(FORGETS, SYSTEM, ASKED, CALL, RESULT)
    assert boundaries[:2] == [turns(SYSTEM), turns(SYSTEM, ASKED)]
    assert len(boundaries) == 3
    assert boundaries[2].endswith(turns(RESULT))
    assert texts(CHATML, ASKED, CALL, RESULT) == [turns(ASKED, CALL, RESULT)]


def test_a_template_that_always_asks_for_a_reply():
    assert texts(THINKING, ASKED)[0] == turns(ASKED)


@pytest.mark.parametrize("messages", [[SYSTEM, ASKED], [SYSTEM, ASKED, CALL, ASKED], [ASKED]])
def test_a_go_template_says_the_same_without_being_told_not_to_ask(messages):
    go, jinja = PAIRS["chatml"]
    assert texts(go, *messages) == texts(jinja, *messages) != []


def test_a_template_that_never_asks_for_one():
    (begin,) = texts(ASKS_NOT, Message("user", "x" * 40))
    assert begin.startswith("<|im_start|>")


def test_a_template_without_control_tokens():
    prompt = "### user: What is the weather like in Wellington?\n"
    assert texts(PLAIN, ASKED) == [prompt]


def test_a_template_that_refuses_what_may_come():
    assert texts(ORDERLY, SYSTEM, ASKED) == [turns(SYSTEM), turns(SYSTEM, ASKED)]


def test_tokens_that_the_tokenizer_adds_are_counted():
    (position,) = texts(CHATML, ASKED, tokenizer=WITH_BOS_AND_EOS)
    assert position.endswith(turns(ASKED))


def test_only_what_is_whole_and_wanted_has_boundaries():
    assert texts(CHATML, SYSTEM, ASKED, with_boundaries=False) == []
    assert texts(CHATML, SYSTEM, Message("user", "x" * 500), context_length=200) == []


def test_control_tokens_in_contents_do_no_harm():
    content = "<|im_start|>" * 300
    assert texts(CHATML, Message("user", content))[-1] == turn("user", content)
