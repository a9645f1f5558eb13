"""What a worker of the second engine does with requests that come at odd times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from puna.engine.request import Request, SamplingParams, StepOutput
from puna.worker.calls import Asked
from puna.worker.engine.messages import Cancel, Outputs, Submit
from puna.worker.llamacpp.messages import ServerSettings
from puna.worker.llamacpp.server import LlamaServer

pytestmark = pytest.mark.unit


class Calls:
    def __init__(self) -> None:
        self.told: list[StepOutput] = []

    def tell(self, event: Outputs) -> None:
        self.told += event.outputs


class Model:
    """Ends every reply at once."""

    async def outputs(self, request: Request, _: asyncio.Event) -> AsyncGenerator[StepOutput, None]:
        yield StepOutput(request_id=request.id, finish_reason="stop")


def new_server(model: Any) -> tuple[LlamaServer, Calls]:
    settings = ServerSettings(program="", directory="", context_length=16, num_slots=1, kv_type="f16")
    calls: Any = Calls()
    hosted: Any = None
    server = LlamaServer(settings, 1, hosted, calls)
    server._model = model
    return server, calls


def submit(request_id: str) -> Asked:
    request = Request(id=request_id, model_id="m", prompt=[1], sampling=SamplingParams())
    return Asked(0, Submit(request), [])


def test_a_request_before_the_model_is_told_so():
    server, calls = new_server(None)
    server._handle(submit("a"))
    assert [(output.request_id, output.finish_reason) for output in calls.told] == [("a", "error")]


def test_nothing_is_left_of_a_request_that_is_cancelled_before_it_begins():
    server, calls = new_server(Model())

    async def main() -> None:
        server._handle(submit("a"))
        server._handle(Asked(0, Cancel("a"), []))
        server._handle(submit("b"))
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [output.request_id for output in calls.told] == ["b"]
    assert not server._running
