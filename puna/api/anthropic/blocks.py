"""Content blocks of requests, turned into messages."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from puna.api.anthropic.schema import InputMessage
from puna.api.errors import ApiError
from puna.chat.images import joined
from puna.chat.messages import CalledFunction, Message, ToolCall

_SHOWN_CHARS = 40
_JSON_NAMES: dict[type[Any], str] = {str: "string", dict: "object"}
_MAX_DEPTH = 4
"""Blocks within blocks: a result, a document in it, texts in that."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """Pieces of what an assistant says. There may be very many."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def message(self) -> Message:
        thinking = "".join(self.thoughts) if self.thoughts else None
        return Message("assistant", "".join(self.texts), thinking=thinking, tool_calls=self.calls)


class Conversation:
    """Makes messages of turns; results of calls are told the names of what was called."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by the ids of calls

    def messages(self, turn: InputMessage) -> list[Message]:
        """Of one turn. ApiError (400) for blocks that make no sense; unknown ones are ignored."""
        role = turn.role.lower()
        messages = list(self._assistant(turn) if role == "assistant" else self._other(role, turn))
        return messages or [Message(role)]

    def _other(self, role: str, turn: InputMessage) -> Iterator[Message]:
        """Results of calls come before what the user says."""
        rest = []
        for block in _blocks(turn.content):
            if block["type"] == "tool_result":
                yield self._result(block)
            else:
                rest.append(block)
        text, images = joined(list(_parts(rest, 0)), "")
        if text or images:
            yield Message(role, text, images=images)

    def _assistant(self, turn: InputMessage) -> Iterator[Message]:
        """One message, unless what servers' tools found comes in between."""
        answer = _Answer()
        for block in _blocks(turn.content):
            match block["type"]:
                case "text":
                    answer.texts.append(_field(block, "text", str))
                case "thinking":
                    answer.thoughts.append(_field(block, "thinking", str))
                case "tool_use" | "server_tool_use":
                    answer.calls.append(self._call(block))
                case kind if kind.endswith("_tool_result"):
                    yield answer.message()
                    yield self._result({**block, "content": _as_text(block.get("content"))})
                    answer = _Answer()
        if (message := answer.message()) != Message("assistant"):
            yield message

    def _call(self, block: dict[str, Any]) -> ToolCall:
        call_id, name = _field(block, "id", str), _field(block, "name", str)
        if not call_id or not name:
            raise ApiError(400, f"{_shown(block['type'])} block needs an id and a name")
        self._names[call_id] = name
        arguments = _field(block, "input", dict) if block.get("input") is not None else {}
        return ToolCall(CalledFunction(name, arguments), call_id)

    def _result(self, block: dict[str, Any]) -> Message:
        call_id = _field(block, "tool_use_id", str)
        text, images = joined(list(_parts(_blocks(block.get("content") or ""), 0)), "")
        if not text and block.get("is_error") is True:
            text = "error"
        return Message(
            "tool", text, tool_name=self._names.get(call_id), tool_call_id=call_id or None, images=images
        )


def text_blocks(content: Any, field: str) -> list[str]:
    """A text, or blocks of text. ApiError (400) for anything else."""
    texts = []
    for block in _blocks(content, field):
        if block["type"] != "text":
            raise ApiError(400, f"{field} may have blocks of type text, not {_shown(block['type'])}")
        texts.append(_field(block, "text", str))
    return texts


def _blocks(content: Any, field: str = "content") -> list[dict[str, Any]]:
    """Each has a type. A text alone is a block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ApiError(400, f"{field} must be a string or an array of blocks")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ApiError(400, f"{field} has a block without a type")
    return content


def _parts(blocks: list[dict[str, Any]], depth: int) -> Iterator[str | bytes]:
    """Texts and images, which a model is shown without anything between."""
    if depth > _MAX_DEPTH:
        raise ApiError(400, "content has too many blocks within blocks")
    for block in blocks:
        match block["type"]:
            case "text":
                yield _field(block, "text", str)
            case "image":
                yield _image(_field(block, "source", dict))
            case "document":
                yield from _titled(block, _document(_field(block, "source", dict), depth))
            case "search_result":
                yield from _titled(block, _parts(_blocks(block.get("content", "")), depth + 1))
            case "tool_reference":
                yield f"{_field(block, 'tool_name', str)} can be called."


def _document(source: dict[str, Any], depth: int) -> Iterator[str | bytes]:
    match source.get("type"):
        case "text":
            yield _field(source, "data", str)
        case "content":
            yield from _parts(_blocks(source.get("content")), depth + 1)
        case kind:
            raise ApiError(400, f"invalid document source type: {_shown(kind)}. Only text is supported.")


def _titled(block: dict[str, Any], parts: Iterator[str | bytes]) -> Iterator[str | bytes]:
    title = block.get("title")
    if isinstance(title, str) and title:
        yield f"{title}\n"
    yield from parts


def _image(source: dict[str, Any]) -> bytes:
    kind = source.get("type")
    if kind != "base64":
        raise ApiError(400, f"invalid image source type: {_shown(kind)}. Only base64 images are supported.")
    try:
        return b64decode(_field(source, "data", str), validate=True)
    except ValueError as error:
        raise ApiError(400, "invalid base64 data in an image") from error


def _field(block: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = block.get(name)
    if not isinstance(value, kind):
        what = f"a block of type {_shown(block.get('type'))} needs the field {name!r}"
        raise ApiError(400, f"{what}, as {_JSON_NAMES[kind]}")
    return value


def _shown(kind: Any) -> str:
    """What should be the name of a type."""
    return kind[:_SHOWN_CHARS] if isinstance(kind, str) else type(kind).__name__


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()
