"""What the builder writes is read by llguidance as it is meant."""

from __future__ import annotations

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.thinking import THINK, ThinkingTags
from puna.chat.tools import Tool, ToolFunction
from tests.chat.grammars.matching import find_control, fits

pytestmark = pytest.mark.unit

_TOOL = Tool(ToolFunction("f"))


@pytest.fixture
def builder() -> GrammarBuilder:
    return GrammarBuilder(find_control)


@pytest.mark.parametrize(
    "text",
    [
        'say "a\\b/c"',
        "line\nfeed\ttab\x7f\x00",
        "é😀\u2028 ｜",
        "<tool_call>",
        "// # <|nothing|> [0] {}",
        "%json",
    ],
)
def test_any_text_can_be_a_literal(builder: GrammarBuilder, text: str) -> None:
    grammar = builder.grammar(builder.literal(text))
    assert fits(grammar, text)
    assert not fits(grammar, text + "x")


@pytest.mark.parametrize("text", ["a[CALLS]b", "<｜tool▁calls▁begin｜>", "<|call|>[CALLS]"])
def test_literals_of_a_format_have_control_tokens(builder: GrammarBuilder, text: str) -> None:
    assert fits(builder.grammar(builder.literal(text)), text)


def test_what_a_client_wrote_has_none(builder: GrammarBuilder) -> None:
    assert not fits(builder.grammar(builder.plain("a[CALLS]")), "a[CALLS]")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a/b", "a/b"),
        (r"a\/b", "a/b"),
        ("[/]+", "//"),
        ("/", "/"),
        ("", ""),
        (r"\\", "\\"),
        ("a\nb #", "a\nb #"),
    ],
)
def test_regular_expressions(builder: GrammarBuilder, pattern: str, text: str) -> None:
    grammar = builder.grammar(builder.regex(pattern))
    assert fits(grammar, text)
    assert not fits(grammar, text + "!")


def test_a_regular_expression_must_not_take_the_slash_behind_it(builder: GrammarBuilder) -> None:
    with pytest.raises(PromptError, match="backslash"):
        builder.regex("a\\")


def test_free_text_has_no_control_tokens(builder: GrammarBuilder) -> None:
    grammar = builder.grammar(builder.text())
    assert fits(grammar, "")
    assert fits(grammar, "any 😀\n<tool_call> </think>")
    assert not fits(grammar, "a[CALLS]")


_TAGS = [
    "<tool_call>",
    "[CALLS]",
    "\n[CALLS]",
    "\n[CALLS]x<|call|>",
    "</a",
    "Action:",
    "<<b>>",
    "|",
    "<tool_\n/]^",
]


@pytest.mark.parametrize("tag", _TAGS)
def test_text_ends_with_the_first_tag(tag: str) -> None:
    held, free = GrammarBuilder(find_control), GrammarBuilder(find_control)
    for grammar in (
        held.grammar(f'{held.text_up_to(tag, "/(?s:.*)/")} "!"'),
        free.grammar(free.ended_text((tag, '"!"'))),
    ):
        assert fits(grammar, f"some\ntext {tag}!")
        assert fits(grammar, f"{tag}!")
        assert not fits(grammar, f"a{tag}b")
        assert not fits(grammar, f"a{tag}b{tag}!")


@pytest.mark.parametrize("tag", ["<tool_call>", "</a", "Action:", "<tool_\n/]^"])
def test_text_may_have_parts_of_tags(tag: str) -> None:
    builder = GrammarBuilder(find_control)
    grammar = builder.grammar(builder.ended_text((tag, '"1"'), ("<tools>", '"2"'), may_go_on=True))
    for part in (tag[:-1], "<tool", tag[0] * 3, "</x>", "<t", "<too", "😀<", "é<é", "|"):
        if tag not in part:
            assert fits(grammar, f"{part}")
            assert fits(grammar, f"a{part}b {part} ")
            assert fits(grammar, f"{part}{tag}1"), part
            assert fits(grammar, f"{part}<tools>2")
            assert not fits(grammar, f"{part}{tag}")
            assert not fits(grammar, f"{part}{tag}2")


def test_json_has_bounded_white_space(builder: GrammarBuilder) -> None:
    grammar = builder.grammar(builder.schema({"type": "object", "x-guidance": {"whitespace_pattern": "x*"}}))
    assert fits(grammar, '{"a":1,"b":[]}')
    assert fits(grammar, '{\n  "a": {\n    "b": 1\n  }\n}')
    assert not fits(grammar, '{\n\n"a": 1}')
    assert not fits(grammar, '{"a":' + " " * 100 + "1}")
    assert not fits(grammar, '{x"a":1}')


@pytest.mark.parametrize("begin", ["<tool_call>", "[CALLS]", "<｜tool▁calls▁begin｜>"])
@pytest.mark.parametrize("text", ["", "some text ", "<", "1. 😀 </tool_call>\n\n"])
def test_calls_behind_text(begin: str, text: str) -> None:
    def fits_task(task: ReplyTask, reply: str) -> bool:
        builder = GrammarBuilder(find_control)
        arguments = builder.rule("ARGUMENTS", "/[0-9]+/")
        return fits(
            builder.grammar(builder.tagged_reply(task, begin, f'{arguments} "."', repeats=True)), reply
        )

    auto = ReplyTask(tools=[_TOOL])
    assert fits_task(auto, text)
    assert fits_task(auto, f"{text}{begin}1.")
    assert fits_task(auto, f"{text}{begin}1.\n{begin}23.\n")
    assert not fits_task(auto, f"{text}{begin}1")
    assert not fits_task(auto, f"{text}{begin}x.")
    assert not fits_task(auto, f"{text}{begin}1. more")
    must = ReplyTask(tools=[_TOOL], must_call=True, parallel=False)
    assert fits_task(must, f"{begin}1.")
    assert fits_task(must, f"{text}{begin}1.") is (text == "")
    assert not fits_task(must, f"{begin}1.{begin}1.")
    assert not fits_task(must, text)


@pytest.mark.parametrize("tags", [THINK, ThinkingTags("<|call|>", "[CALLS]")])
def test_an_answer_begins_behind_thoughts(tags: ThinkingTags) -> None:
    def fits_task(reply: str, *, starts: bool, tools: list[Tool]) -> bool:
        builder = GrammarBuilder(find_control)
        answer = builder.schema({"enum": [1, 2]})
        task = ReplyTask(answer=answer, thinking=tags, starts_thinking=starts, tools=tools)
        return fits(builder.grammar(builder.tagged_reply(task, "<tool_call>", '"!"', repeats=False)), reply)

    for tools in ([], [_TOOL]):
        assert fits_task(f"{tags.open}3 < {{ {tags.close}\n\n2", starts=False, tools=tools)
        called = fits_task(f"{tags.open}3 <tool_call>!", starts=False, tools=tools)
        assert called is bool(tools), "a call ends thoughts, too"
        assert fits_task(f"3? {tags.close}2", starts=True, tools=tools)
        assert fits_task("2", starts=False, tools=tools)
        assert not fits_task("2", starts=True, tools=tools)
        assert not fits_task(f"{tags.open}{tags.close}3", starts=False, tools=tools)
        assert fits_task(f"{tags.close}<tool_call>!", starts=True, tools=tools) is bool(tools)


def test_a_client_grammar_is_a_grammar_of_its_own(builder: GrammarBuilder) -> None:
    answer = builder.lark('start: "x" TEXT | "y"\nTEXT: "z"\n%ignore " "')
    grammar = builder.grammar(f'{builder.ended_text(("</think>", answer))} "."')
    assert fits(grammar, "thought</think>x z.")
    assert fits(grammar, "thought</think>y.")
    assert not fits(grammar, "thought</think>xfree text.")
