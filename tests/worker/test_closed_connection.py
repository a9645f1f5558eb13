"""A connection may be closed before the client has read its end; uvloop then refuses to write."""

from __future__ import annotations

import socket

import pytest
import uvloop

from puna.engine.request import Request
from puna.worker.client import WorkerClient, WorkerDied
from puna.worker.protocol import Ready, encode

pytestmark = pytest.mark.native


def test_writing_to_a_closed_connection_says_that_the_worker_died():
    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(encode(Ready()))
        client = await WorkerClient.connect(ours)
        outputs = client.generate(Request(id="r", model_id="m", prompt=[1]))
        client._writer.close()  # what uvloop does when a write fails
        with pytest.raises(WorkerDied):
            await anext(outputs)
        with pytest.raises(WorkerDied):
            await client.unload("m")
        await client.close()
        theirs.close()

    uvloop.run(main())
