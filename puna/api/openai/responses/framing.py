"""Responses, whole and as streams of events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import msgspec

from puna.api.errors import ApiError
from puna.api.openai.errors import openai_error_body
from puna.api.openai.responses.items import Status
from puna.api.openai.responses.objects import (
    IncompleteDetails,
    ResponseError,
    ResponseObject,
    usage_of,
)
from puna.api.openai.responses.output import Output
from puna.api.openai.responses.stream_events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
)
from puna.api.openai.responses.tools import OfferedTools
from puna.api.replying.events import Delta, Event, Finish

_BUSY = "rate_limit_exceeded"
_FAILED = "server_error"


class ResponseFraming:
    """response: as it begins."""

    media_type = "text/event-stream"

    def __init__(self, response: ResponseObject, offered: OfferedTools) -> None:
        self._response = response
        self._output = Output(offered)
        self._num_events = 0

    def is_whole(self, first: Event) -> bool:  # noqa: ARG002
        return False

    def frame(self, event: Event) -> bytes:
        return self._begin() + self._encoded(self._events(event))

    def end(self) -> bytes:
        return b""

    def error_frame(self, error: ApiError) -> bytes:
        begin = self._begin()
        code = _BUSY if error.status == 503 else _FAILED
        self._response.status = "failed"
        self._response.error = ResponseError(code, error.text)
        self._response.output = self._output.items
        return begin + self._encoded([ResponseFailed(response=self._response)])

    def body(self, events: list[Event]) -> bytes:
        for event in events:
            for _ in self._events(event):
                pass
        return msgspec.json.encode(self._response)

    def error_body(self, error: ApiError) -> bytes:
        return openai_error_body(error)

    def _begin(self) -> bytes:
        """What comes before everything else."""
        if self._num_events:
            return b""
        response = self._response
        return self._encoded([ResponseCreated(response=response), ResponseInProgress(response=response)])

    def _events(self, event: Event) -> Iterator[StreamEvent]:
        if isinstance(event, Delta):
            yield from self._output.add(event)
        elif isinstance(event, Finish):
            yield from self._finish(event)

    def _finish(self, finish: Finish) -> Iterator[StreamEvent]:
        is_cut = finish.reason == "length"
        status: Status = "incomplete" if is_cut else "completed"
        yield from self._output.finish(status)
        response = self._response
        response.status = status
        response.output = self._output.items
        response.usage = usage_of(finish)
        if is_cut:
            response.incomplete_details = IncompleteDetails("max_output_tokens")
            yield ResponseIncomplete(response=response)
        else:
            response.completed_at = int(time.time())
            yield ResponseCompleted(response=response)

    def _encoded(self, events: Iterable[StreamEvent]) -> bytes:
        frames = []
        for event in events:
            event.sequence_number = self._num_events
            self._num_events += 1
            frames.append(
                b"event: " + event.type.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
            )
        return b"".join(frames)
