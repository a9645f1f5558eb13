"""From the pieces of a reply to the items of a response, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from puna.api.openai.calls import arguments_text
from puna.api.openai.objects import TokenLogprobs, token_logprobs
from puna.api.openai.responses.items import (
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    Status,
    SummaryText,
    new_id,
)
from puna.api.openai.responses.stream_events import (
    ArgumentsDelta,
    ArgumentsDone,
    InputDelta,
    InputDone,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    TextDelta,
    TextDone,
)
from puna.api.openai.responses.tools import OfferedTools, text_argument
from puna.api.replying.events import Delta
from puna.chat.messages import ToolCall


class Output:
    """Thoughts, messages and calls become items in the order in which they come."""

    def __init__(self, offered: OfferedTools) -> None:
        self.items: list[OutputItem] = []
        """Those that are complete."""
        self._offered = offered
        self._open: ReasoningItem | MessageItem | None = None
        self._texts: list[str] = []  # of the open item
        self._logprobs: list[TokenLogprobs] = []  # of the open message
        self._new_logprobs: list[TokenLogprobs] = []  # of text that has not come yet

    def add(self, delta: Delta) -> Iterator[StreamEvent]:
        """Log-probabilities of thoughts and calls have no place in a response."""
        self._new_logprobs += token_logprobs(delta.logprobs)
        if delta.thinking:
            yield from self._think(delta.thinking)
        if delta.content:
            yield from self._say(delta.content, self._new_logprobs)
        if delta.thinking or delta.content or delta.tool_calls:
            self._new_logprobs = []
        for call in delta.tool_calls:
            yield from self._close("completed")
            yield from self._call(call)

    def finish(self, status: Status) -> Iterator[StreamEvent]:
        """A reply without anything says so with an empty message."""
        if not self.items and self._open is None:
            yield from self._begin_message()
        yield from self._close(status)

    @property
    def _index(self) -> int:
        """Of the item that is open, or comes next."""
        return len(self.items)

    def _think(self, text: str) -> Iterator[StreamEvent]:
        if not isinstance(self._open, ReasoningItem):
            yield from self._close("completed")
            item = self._open = ReasoningItem(id=new_id("rs"))
            yield ItemAdded(output_index=self._index, item=item)
            yield SummaryPartAdded(item_id=item.id, output_index=self._index, part=SummaryText(""))
        self._texts.append(text)
        yield SummaryTextDelta(item_id=self._open.id, output_index=self._index, delta=text)

    def _say(self, text: str, logprobs: list[TokenLogprobs]) -> Iterator[StreamEvent]:
        if not isinstance(self._open, MessageItem):
            yield from self._begin_message()
        assert self._open is not None
        self._texts.append(text)
        self._logprobs += logprobs
        yield TextDelta(item_id=self._open.id, output_index=self._index, delta=text, logprobs=logprobs)

    def _begin_message(self) -> Iterator[StreamEvent]:
        yield from self._close("completed")
        item = self._open = MessageItem(id=new_id("msg"), status="in_progress")
        yield ItemAdded(output_index=self._index, item=item)
        yield PartAdded(item_id=item.id, output_index=self._index, part=OutputText(""))

    def _close(self, status: Status) -> Iterator[StreamEvent]:
        item, text, logprobs = self._open, "".join(self._texts), self._logprobs
        self._open, self._texts, self._logprobs = None, [], []
        if isinstance(item, ReasoningItem):
            yield from self._close_reasoning(item, text)
        elif isinstance(item, MessageItem):
            yield from self._close_message(item, text, logprobs, status)

    def _close_reasoning(self, item: ReasoningItem, text: str) -> Iterator[StreamEvent]:
        place: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        part = SummaryText(text)
        yield SummaryTextDone(**place, text=text)
        yield SummaryPartDone(**place, part=part)
        yield self._done(ReasoningItem(id=item.id, summary=[part], encrypted_content=text))

    def _close_message(
        self, item: MessageItem, text: str, logprobs: list[TokenLogprobs], status: Status
    ) -> Iterator[StreamEvent]:
        place: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        part = OutputText(text, logprobs=logprobs)
        yield TextDone(**place, text=text, logprobs=logprobs)
        yield PartDone(**place, part=part)
        yield self._done(MessageItem(id=item.id, status=status, content=[part]))

    def _call(self, call: ToolCall) -> Iterator[StreamEvent]:
        declared = self._offered.declared(call)
        called: dict[str, Any] = {"call_id": call.id or "", "name": declared.name}
        if declared.namespace:
            called["namespace"] = declared.namespace
        if declared.takes_text:
            yield from self._custom_call(called, text_argument(call))
        else:
            yield from self._function_call(called, arguments_text(call))

    def _function_call(self, called: dict[str, Any], arguments: str) -> Iterator[StreamEvent]:
        item = FunctionCallItem(id=new_id("fc"), status="in_progress", arguments="", **called)
        place: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        yield ItemAdded(output_index=self._index, item=item)
        yield ArgumentsDelta(**place, delta=arguments)
        yield ArgumentsDone(**place, name=item.name, arguments=arguments)
        yield self._done(msgspec.structs.replace(item, status="completed", arguments=arguments))

    def _custom_call(self, called: dict[str, Any], text: str) -> Iterator[StreamEvent]:
        item = CustomCallItem(id=new_id("ctc"), status="in_progress", input="", **called)
        place: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
        yield ItemAdded(output_index=self._index, item=item)
        yield InputDelta(**place, delta=text)
        yield InputDone(**place, input=text)
        yield self._done(msgspec.structs.replace(item, status="completed", input=text))

    def _done(self, item: OutputItem) -> StreamEvent:
        event = ItemDone(output_index=self._index, item=item)
        self.items.append(item)
        return event
