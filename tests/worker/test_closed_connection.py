"""A transport may refuse to write before its reader has seen the end: uvloop's raises RuntimeError then."""

from __future__ import annotations

import pytest
import uvloop

from puna.worker.call_client import CallClient, WorkerDied
from puna.worker.calls import open_channel
from puna.worker.engine.messages import TrimKv

pytestmark = pytest.mark.native


def test_a_closing_connection_is_a_dead_worker():
    async def main() -> None:
        ours, theirs = open_channel()
        client = await CallClient.connect(ours, crossing={})
        client._writer.transport.close()
        with pytest.raises(WorkerDied):
            await client.call(TrimKv())
        await client.close()
        theirs.close()

    uvloop.run(main())
