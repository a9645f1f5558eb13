"""What can be told from a Go template without running it. The rules are Ollama's."""

from __future__ import annotations

from collections.abc import Iterator

from puna.chat.replies.thinking import ThinkingTags
from puna.gotemplate.nodes import (
    Action,
    Body,
    Command,
    Field,
    If,
    Node,
    Operand,
    Pipeline,
    Range,
    TemplateCall,
    Text,
    Variable,
    With,
)

_BRANCHES = (If, With, Range)


def names_in(bodies: Iterator[Body]) -> frozenset[str]:
    """All that templates mention, in lower case: fields, and fields of fields."""
    return frozenset(name.lower() for body in bodies for name in _names(body))


def _names(body: Body) -> Iterator[str]:
    for node in body:
        if isinstance(node, Action | TemplateCall | If | With | Range) and node.pipeline is not None:
            yield from _mentioned(node.pipeline)
        if isinstance(node, _BRANCHES):
            yield from _names(node.body)
            yield from _names(node.otherwise)


def _mentioned(pipeline: Pipeline) -> Iterator[str]:
    for operand in _operands(pipeline):
        if isinstance(operand, Field | Variable):
            yield from operand.names


def _operands(pipeline: Pipeline) -> Iterator[Operand]:
    for command in pipeline.commands:
        for operand in command.operands:
            yield operand
            if isinstance(operand, Pipeline):
                yield from _operands(operand)


def thinking_tags(body: Body) -> ThinkingTags | None:
    """What stands around `.Thinking` where messages are ranged over: the first and last text beside it."""
    found = list(_around_thinking(body, False))
    opening = next((text for text, _ in reversed(found) if text is not None), "")
    closing = next((text for _, text in reversed(found) if text is not None), "")
    return ThinkingTags(opening, closing) if opening and closing else None


def _around_thinking(body: Body, within: bool) -> Iterator[tuple[str | None, str | None]]:
    """within: the innermost range is over messages. None: there stands no text."""
    for node in body:
        if isinstance(node, Action | TemplateCall | If | With | Range) and node.pipeline is not None:
            inside = _ranges_messages(node) if isinstance(node, Range) else within
            if inside and _begins_with(node.pipeline, "Thinking"):
                yield _stripped(body[0]), _stripped(body[-1])
        if isinstance(node, _BRANCHES):
            yield from _around_thinking(node.body, inside)
            yield from _around_thinking(node.otherwise, inside)


def _ranges_messages(node: Range) -> bool:
    return _begins_with(node.pipeline, "Messages")


def _begins_with(pipeline: Pipeline, name: str) -> bool:
    """Whether it has such a field of the dot."""
    return any(isinstance(each, Field) and each.names[0] == name for each in _operands(pipeline))


def _stripped(node: Node) -> str | None:
    return node.text.strip() if isinstance(node, Text) else None


def tool_tag(body: Body) -> str:
    """What calls of tools begin with: the first text where earlier ones are written, up to the JSON; "{" if
    there is none.
    """
    calls = _calls_branch(body)
    text = None if calls is None else _first_text(calls.body)
    return ((text or "").partition("{")[0].strip()) or "{"


def _calls_branch(body: Body) -> If | None:
    for node in body:
        if isinstance(node, If) and any(
            isinstance(each, Field) and "ToolCalls" in each.names
            for command in node.pipeline.commands
            for each in command.operands
        ):
            return node
        if isinstance(node, _BRANCHES):
            found = _calls_branch(node.body) or _calls_branch(node.otherwise)
            if found is not None:
                return found
    return None


def _first_text(body: Body) -> str | None:
    """None: something else than text is written first."""
    for node in body:
        if isinstance(node, Text) and node.text.strip():
            return node.text
        if isinstance(node, _BRANCHES):
            return _first_text(node.body) or _first_text(node.otherwise)
        if isinstance(node, Action):
            return None
    return None


def up_to_response(body: Body) -> Body:
    """Without what stands behind the first `.Response` that is written."""
    return _up_to_response(body)[0]


def _up_to_response(body: Body) -> tuple[Body, bool]:
    """(the nodes that stay, whether there was such a one)"""
    kept: Body = []
    for node in body:
        is_cut = False
        if isinstance(node, _BRANCHES):
            inner, is_cut = _up_to_response(node.body)
            otherwise, also_cut = ([], True) if is_cut else _up_to_response(node.otherwise)
            node, is_cut = type(node)(node.pipeline, inner, otherwise), is_cut or also_cut
        elif isinstance(node, Action):
            is_cut = "Response" in _mentioned_fields(node.pipeline)
        kept.append(node)
        if is_cut:
            return kept, True
    return kept, False


def _mentioned_fields(pipeline: Pipeline) -> set[str]:
    return {name for each in _operands(pipeline) if isinstance(each, Field) for name in each.names}


def response() -> Node:
    """`{{ .Response }}`"""
    return Action(Pipeline(0, [Command([Field(["Response"])])]))
