"""Events of a reply as Anthropic's clients want them: whole, or as a stream of content blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from puna.api.anthropic.errors import anthropic_error_body
from puna.api.anthropic.objects import (
    SIGNATURE,
    Block,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    ReplyMessage,
    SignatureDelta,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
    new_id,
    stop_of,
    usage_of,
)
from puna.api.errors import ApiError
from puna.api.replying.events import Delta, Event, Finish


class MessagesFraming:
    """Of one request."""

    media_type = "text/event-stream"

    def __init__(self, model: str, request_id: str) -> None:
        """model: as requested."""
        self._model = model
        self._request_id = request_id
        self._parts = ReplyParts()
        self._has_begun = False
        self._open: Block | None = None
        self._index = -1  # of the latest block
        self._has_calls = False

    def is_whole(self, first: Event) -> bool:  # noqa: ARG002
        return False

    def frame(self, event: Event) -> bytes:
        assert isinstance(event, Delta | Finish), "rendered prompts are not asked for here"
        return b"".join(map(_sse, self._stream_events(event)))

    def end(self) -> bytes:
        return _sse(MessageStop())

    def error_frame(self, error: ApiError) -> bytes:
        return b"event: error\ndata: " + self.error_body(error) + b"\n\n"

    def body(self, events: list[Event]) -> bytes:
        parts = ReplyParts()
        deltas = [event for event in events if isinstance(event, Delta)]
        content = merged([part for delta in deltas for part in parts.add(delta)])
        (finish,) = [event for event in events if isinstance(event, Finish)]
        stop = stop_of(finish, has_calls=any(isinstance(block, ToolUseBlock) for block in content))
        message = self._message(usage_of(finish))
        message.content, message.stop_reason = content, stop.stop_reason
        message.stop_sequence = stop.stop_sequence
        return msgspec.json.encode(message)

    def error_body(self, error: ApiError) -> bytes:
        return anthropic_error_body(error, self._request_id)

    def _message(self, usage: Usage) -> ReplyMessage:
        return ReplyMessage(id=new_id("msg"), model=self._model, usage=usage)

    def _stream_events(self, event: Delta | Finish) -> Iterator[StreamEvent]:
        if not self._has_begun:
            self._has_begun = True
            yield MessageStart(self._message(Usage(input_tokens=_prompt_tokens(event))))
        if isinstance(event, Delta):
            for part in self._parts.add(event):
                yield from self._part(part)
            return
        yield from self._close()
        yield MessageDelta(stop_of(event, has_calls=self._has_calls), usage_of(event))

    def _part(self, part: Block) -> Iterator[StreamEvent]:
        if type(part) is not type(self._open) or isinstance(part, ToolUseBlock):
            yield from self._close()
            self._index += 1
            self._open = part
            yield ContentBlockStart(self._index, _without_content(part))
        match part:
            case TextBlock(text):
                yield ContentBlockDelta(self._index, TextDelta(text))
            case ThinkingBlock(thinking):
                yield ContentBlockDelta(self._index, ThinkingDelta(thinking))
            case ToolUseBlock():
                self._has_calls = True
                arguments = msgspec.json.encode(part.input).decode()
                yield ContentBlockDelta(self._index, InputJsonDelta(arguments))
                yield from self._close()

    def _close(self) -> Iterator[StreamEvent]:
        if isinstance(self._open, ThinkingBlock):
            yield ContentBlockDelta(self._index, SignatureDelta(SIGNATURE))
        if self._open is not None:
            yield ContentBlockStop(self._index)
        self._open = None


class ReplyParts:
    """Deltas as pieces of blocks. White space alone makes no block of text: clients send replies back, and
    many models write line breaks around their calls.
    """

    def __init__(self) -> None:
        self._in_text = False
        self._held = ""

    def add(self, delta: Delta) -> Iterator[Block]:
        if delta.thinking:
            self._end_text()
            yield ThinkingBlock(delta.thinking)
        self._held += delta.content
        if self._held and (self._in_text or not self._held.isspace()):
            text, self._held, self._in_text = self._held, "", True
            yield TextBlock(text)
        for call in delta.tool_calls:
            self._end_text()
            yield ToolUseBlock(call.id or new_id("toolu"), call.function.name, call.function.arguments)

    def _end_text(self) -> None:
        self._in_text, self._held = False, ""


def merged(parts: Sequence[Block]) -> list[Block]:
    """Blocks that are complete."""
    blocks: list[Block] = []
    for kind, group in groupby(parts, type):
        pieces = list(group)
        if kind is TextBlock:
            blocks.append(TextBlock("".join(part.text for part in pieces if isinstance(part, TextBlock))))
        elif kind is ThinkingBlock:
            thoughts = "".join(part.thinking for part in pieces if isinstance(part, ThinkingBlock))
            blocks.append(ThinkingBlock(thoughts, SIGNATURE))
        else:
            blocks += pieces
    return blocks


def _without_content(part: Block) -> Block:
    return ToolUseBlock(part.id, part.name) if isinstance(part, ToolUseBlock) else type(part)()


def _prompt_tokens(event: Delta | Finish) -> int:
    if isinstance(event, Delta):
        return event.prompt_tokens
    return event.counts.prompt_eval_count if event.counts is not None else 0


def _sse(event: StreamEvent) -> bytes:
    name: str = event.__struct_config__.tag  # type: ignore[assignment]
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
