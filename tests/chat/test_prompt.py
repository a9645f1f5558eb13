"""From a request to a prompt's tokens."""

from __future__ import annotations

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.answer import RegexAnswer
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.prompt import Prompt, PromptRequest, check_tokens
from puna.chat.prompt_building import build_prompts
from puna.chat.replies.reply_format import ReplyFormat
from puna.chat.templates.template import ChatTemplate
from puna.chat.tools import Tool, ToolFunction
from puna.tokenizer import load_tokenizer
from tests.api.ggufs import CALLING, CHATML, THINKING
from tests.tiny import byte_level_vocabulary

pytestmark = pytest.mark.unit

HI = [Message("user", "hi")]
TOKENS, TYPES, MERGES = byte_level_vocabulary()
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": TYPES,
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 65,
    "tokenizer.ggml.eos_token_id": 66,
}
TOKENIZER = load_tokenizer(VOCABULARY)
WITH_BOS_AND_EOS = load_tokenizer(
    VOCABULARY | {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
)


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def build(source: str | None = CHATML, tokenizer=TOKENIZER, **request) -> Prompt:
    template = None if source is None else ChatTemplate(source, bos_token="b", eos_token="e")
    request = PromptRequest(**{"context_length": 2048, **request})
    (prompt,) = build_prompts(request, template, tokenizer)
    return prompt


def text(*args, **request) -> str:
    """What the tokens stand for."""
    return TOKENIZER.decode(build(*args, **request).tokens)


def test_a_conversation_is_rendered_in_order_and_roles_match_in_any_case():
    messages = [Message("System", "S"), Message("USER", "a"), Message("assistant", "b")]
    prompt = build(messages=messages)
    assert prompt.text == turn("system", "S") + turn("user", "a") + turn("assistant", "b") + (
        "<|im_start|>assistant\n"
    )
    assert prompt.tokens == TOKENIZER.encode_prompt(prompt.text)
    assert prompt.reply == ReplyFormat()


def test_system_only_if_a_conversation_does_not_begin_with_one():
    model = {"system": "Be wise.", "embedded": [Message("assistant", "told")]}
    assert text(messages=HI, **model).startswith(
        turn("system", "Be wise.") + turn("assistant", "told") + turn("user", "hi")
    )
    own = text(messages=[Message("system", "Be brief."), *HI], **model)
    assert own.startswith(turn("assistant", "told") + turn("system", "Be brief."))
    assert "wise" not in own


def test_a_line_that_changes_with_every_request_is_no_part_of_the_prompt():
    header = "x-anthropic-billing-header: cc_version=2.1.77.a3f; cch={};\n"
    first, second = (
        text(messages=[Message("system", header.format(cch) + "S"), *HI]) for cch in ("00000", "11111")
    )
    assert first == second == turn("system", "S") + turn("user", "hi") + "<|im_start|>assistant\n"


def test_a_prompt_is_the_users_part_of_a_conversation():
    model = {"system": "S", "embedded": [Message("user", "once")]}
    reply = "<|im_start|>assistant\n"
    assert text(prompts=["hi"], **model) == (
        turn("system", "S") + turn("user", "once") + turn("user", "hi") + reply
    )
    continued = text(prompts=["hi"], context=[65, 66], **model)
    assert continued == TOKENIZER.decode([65, 66]) + turn("system", "S") + turn("user", "hi") + reply


def test_tokens_and_raw_texts_are_taken_as_they_are_each_as_a_prompt():
    request = PromptRequest(prompts=["hi", [5, 6]], raw=True, context_length=64, num_keep=-1)
    prompts = build_prompts(request, None, WITH_BOS_AND_EOS)
    assert [prompt.tokens for prompt in prompts] == [WITH_BOS_AND_EOS.encode("hi"), [5, 6]]
    assert [prompt.text for prompt in prompts] == ["hi", ""]


@pytest.mark.parametrize(
    "request_",
    [{"prompts": ["hi"], "raw": True}, {"prompts": [[5, 6]]}, {"prompts": ["hi"]}, {"messages": HI}],
)
def test_a_format_holds_without_a_template_too(request_):
    assert build(None, **request_).grammar == ""
    assert "yes|no" in build(None, **request_, answer=RegexAnswer("yes|no")).grammar


@pytest.mark.parametrize("token", [-1, 10**6, 10**30])
@pytest.mark.parametrize("field", ["prompt", "context"])
def test_a_token_that_does_not_exist_is_named(field, token):
    tokens = {"prompts": [[1], [token]]} if field == "prompt" else {"context": [1, token]}
    with pytest.raises(PromptError, match=f"{field} has token {token}"):
        check_tokens(PromptRequest(context_length=64, **tokens), 300)


def test_without_a_template_a_conversation_is_what_was_said():
    assert text(None, prompts=["hi"], system="ignored") == "hi"


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "b{{ messages[0].content }}"])
def test_the_tokenizers_special_tokens_are_there_once(source):
    bos = TOKENIZER.token_text(65)
    prompt = build(source.replace("b{{", bos + "{{"), WITH_BOS_AND_EOS, prompts=["hi"])
    assert prompt.tokens == WITH_BOS_AND_EOS.encode_prompt(prompt.text)
    assert prompt.tokens.count(65) == prompt.tokens.count(66) == 1


def test_a_context_needs_no_second_bos():
    prompt = build("{{ messages[0].content }}", WITH_BOS_AND_EOS, prompts=["hi"], context=[5])
    assert prompt.tokens == [5, *WITH_BOS_AND_EOS.encode("hi")[1:]]


def test_thinking_reaches_templates_that_know_it():
    assert text(THINKING, messages=HI, think=False).endswith("<think>\n\n</think>\n\n")
    assert text(THINKING, messages=HI, think=True, think_level="low").endswith("assistant\n[low]")
    reply = build(THINKING, messages=HI, think=True).reply
    assert (reply.may_think, reply.starts_thinking) == (True, False)
    opened = "{{ messages[0].content }}<think></think><think>\n"
    assert build(opened, messages=HI, think=True).reply.starts_thinking


@pytest.mark.parametrize("think", [False, True])
def test_replies_may_be_in_channels(think):
    source = "{{ messages[0].content }}<|start|>assistant{# <|channel|>final<|message|> #}"
    assert build(source, messages=HI, think=think).reply.family == "harmony"
    assert build(THINKING, messages=HI, think=think).reply.family == "plain"
    assert build(source, prompts=["hi"], raw=True).reply.family == "plain"


def test_earlier_thoughts_go_where_the_model_wants_it():
    messages = [
        *HI,
        Message("assistant", "<think>\nhmm\n</think>\n\nYes."),
        Message("user", "<think>mine</think> and?"),
    ]
    assert turn("assistant", "Yes.") in text(messages=messages, forgets_thoughts=True)
    assert "mine" in text(messages=messages, forgets_thoughts=True)
    assert "hmm" in text(messages=messages)


def test_old_turns_go_when_the_context_is_full():
    messages = [Message("system", "S"), *(Message("user", letter * 20) for letter in "abcd")]
    cut = text(messages=messages, context_length=64)
    assert turn("system", "S") in cut
    assert turn("user", "d" * 20) in cut
    assert "a" * 20 not in cut


def test_a_long_prompt_loses_its_middle():
    prompt = "".join(chr(97 + n % 26) for n in range(300))
    cut = build(prompts=[prompt], raw=True, context_length=64, num_keep=5)
    assert len(cut.tokens) < 64
    assert TOKENIZER.decode(cut.tokens).startswith(prompt[:5])
    assert TOKENIZER.decode(cut.tokens).endswith(prompt[-20:])
    assert cut.num_keep == 5


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("field", ["shift", "truncate"])
def test_a_long_prompt_that_may_not_be_cut_is_refused(field, raw):
    with pytest.raises(PromptError, match="longer than the context length"):
        build(prompts=["a b c " * 100], raw=raw, context_length=64, **{field: False})


def test_a_prompt_of_nothing_is_refused():
    with pytest.raises(PromptError, match="empty"):
        build(prompts=[""], raw=True)


@pytest.mark.parametrize(("num_keep", "kept"), [(0, 0), (9, 9), (1000, 63), (-1, 2)])
def test_num_keep_leaves_room_for_a_token(num_keep, kept):
    assert build(prompts=[[5, 6]], num_keep=num_keep, context_length=64).num_keep == kept


def test_boundaries_of_a_conversation_that_is_said_in_another_way():
    template = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('') }}"
        "{% endif %}{% endfor %}" + CHATML
    )
    begin = [Message("system", "Be wise. " * 20), *HI, Message("assistant", "so " * 20)]
    messages = [*begin, Message("system", "Mode: plan. " * 20)]
    prompt = build(template, messages=messages, with_boundaries=True)
    asks = TOKENIZER.encode("<|im_start|>assistant\n", add_special=False)
    assert prompt.boundaries[-1] == len(prompt.tokens) - len(asks)
    assert prompt.boundaries[0] == len(TOKENIZER.encode(turn("system", begin[0].content), add_special=False))


def test_a_conversation_that_is_cut_begins_with_a_question_or_a_call():
    """...where the template has the user begin, and with what the system says in any case."""
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}"
        "{% if messages[0].role != 'user' %}{{ raise_exception('alternate') }}{% endif %}" + CALLING
    )
    system = Message("system", "Be wise.")
    long = "word " * 40

    def cut(*messages: Message) -> str:
        return text(template, messages=[system, *messages], context_length=150)

    reply = "<|im_start|>assistant\n"
    chat = [Message("user", long), Message("assistant", long), Message("user", "b")]
    assert cut(*chat) == turn("user", "Be wise.") + turn("user", "b") + reply
    call = Message("assistant", "c", tool_calls=[ToolCall(CalledFunction("f"))])
    said = 'c<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    found = Message("tool", "found", tool_name="f")
    loop = [Message("user", long), call, Message("tool", long), call, found]
    assert cut(*loop) == turn("user", "Be wise.") + turn("assistant", said) + turn("tool", "found") + reply


def test_gpt_oss_is_given_identifiers_and_efforts_that_it_knows():
    source = (
        "<|channel|><|message|>{{ reasoning_effort }}{% for t in tools %} {{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{% for c in m.tool_calls %} {{ c.function.name }}{% endfor %}"
        "{% if m.name %} {{ m.name }}{% endif %}{% endfor %}"
    )
    tools = [Tool(ToolFunction("a.b")), Tool(ToolFunction("a_b")), Tool(ToolFunction("1"))]
    called = Message("assistant", tool_calls=[ToolCall(CalledFunction("a.b"))])
    messages = [*HI, called, Message("tool", "r", tool_name="a.b")]
    prompt = build(source, messages=messages, tools=tools, think=True, think_level="max")
    assert prompt.text == "<|channel|><|message|>high a_b_ a_b _1 a_b_ a_b_"
