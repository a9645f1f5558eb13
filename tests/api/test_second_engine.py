"""What is asked of a model that llama.cpp's server runs, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from puna.api.errors import ApiError
from puna.api.replying.second_engine import for_second_engine
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, LarkAnswer, RegexAnswer, SchemaAnswer
from puna.chat.prompt import Prompt
from puna.chat.replies.reply_format import ReplyFormat
from puna.engine.request import Request

pytestmark = pytest.mark.unit


def asked(
    answer: AnswerFormat | None = None,
    reply: ReplyFormat = ReplyFormat(),  # noqa: B008
    *,
    takes_text: bool = False,
    **fields: Any,
) -> Request:
    request = Request(**{"id": "r", "model_id": "m", "prompt": [1], "grammar": "start: x", **fields})
    prompt = Prompt(text="one", tokens=[1], num_keep=0, reply=reply)
    return for_second_engine(request, prompt, answer, takes_text=takes_text)


def test_a_format_goes_as_a_schema_and_our_grammar_never():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert json.loads(asked(SchemaAnswer(schema)).json_schema) == schema
    assert json.loads(asked(JsonAnswer()).json_schema) == {"type": "object"}
    assert asked(SchemaAnswer(schema)).grammar == asked().grammar == asked().json_schema == ""


@pytest.mark.parametrize(
    ("answer", "reply", "fields"),
    [
        (RegexAnswer("a+"), {}, {}),
        (LarkAnswer("start: /a/"), {}, {}),
        (JsonAnswer(), {"may_think": True}, {}),
        (JsonAnswer(), {"may_call": True}, {}),
        (None, {"may_call": True, "must_call": True}, {}),
        (None, {}, {"session": "mine"}),
    ],
)
def test_the_rest_is_refused(answer: AnswerFormat | None, reply: dict[str, bool], fields: dict[str, str]):
    with pytest.raises(ApiError, match="second engine") as refused:
        asked(answer, ReplyFormat(**reply), **fields)
    assert refused.value.status == 400


def test_tools_may_be_called_and_thoughts_come_freely():
    assert asked(None, ReplyFormat(may_call=True, may_think=True)).prompt == [1]


def test_a_prompt_goes_as_text_where_its_tokens_are_not_known():
    request = asked(takes_text=True)
    assert (request.text, request.prompt) == ("one", [])
    assert asked().text == ""
