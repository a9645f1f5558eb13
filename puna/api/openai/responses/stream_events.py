"""Events of a streamed response: https://platform.openai.com/docs/api-reference/responses-streaming"""

from __future__ import annotations

from typing import Any

import msgspec

from puna.api.openai.responses.items import OutputItem, OutputText, SummaryText
from puna.api.openai.responses.objects import ResponseObject


class StreamEvent(msgspec.Struct, kw_only=True, tag_field="type"):
    """sequence_number: from 0 on, set when it is sent."""

    sequence_number: int = 0

    @property
    def type(self) -> str:
        """As in its JSON."""
        return str(self.__struct_config__.tag)


class ResponseCreated(StreamEvent, tag="response.created"):
    response: ResponseObject


class ResponseInProgress(StreamEvent, tag="response.in_progress"):
    response: ResponseObject


class ResponseCompleted(StreamEvent, tag="response.completed"):
    response: ResponseObject


class ResponseIncomplete(StreamEvent, tag="response.incomplete"):
    response: ResponseObject


class ResponseFailed(StreamEvent, tag="response.failed"):
    response: ResponseObject


class ItemAdded(StreamEvent, tag="response.output_item.added"):
    output_index: int
    item: OutputItem


class ItemDone(StreamEvent, tag="response.output_item.done"):
    output_index: int
    item: OutputItem


class _OfItem(StreamEvent, kw_only=True):
    item_id: str
    output_index: int


class SummaryPartAdded(_OfItem, tag="response.reasoning_summary_part.added"):
    part: SummaryText
    summary_index: int = 0


class SummaryTextDelta(_OfItem, tag="response.reasoning_summary_text.delta"):
    delta: str
    summary_index: int = 0


class SummaryTextDone(_OfItem, tag="response.reasoning_summary_text.done"):
    text: str
    summary_index: int = 0


class SummaryPartDone(_OfItem, tag="response.reasoning_summary_part.done"):
    part: SummaryText
    summary_index: int = 0


class PartAdded(_OfItem, tag="response.content_part.added"):
    part: OutputText
    content_index: int = 0


class TextDelta(_OfItem, tag="response.output_text.delta"):
    delta: str
    content_index: int = 0
    logprobs: list[Any] = []


class TextDone(_OfItem, tag="response.output_text.done"):
    text: str
    content_index: int = 0
    logprobs: list[Any] = []


class PartDone(_OfItem, tag="response.content_part.done"):
    part: OutputText
    content_index: int = 0


class ArgumentsDelta(_OfItem, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_OfItem, tag="response.function_call_arguments.done"):
    name: str
    arguments: str


class InputDelta(_OfItem, tag="response.custom_tool_call_input.delta"):
    delta: str


class InputDone(_OfItem, tag="response.custom_tool_call_input.done"):
    input: str
