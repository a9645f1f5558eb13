"""A child's log comes through whole, and harmless."""

from __future__ import annotations

import asyncio

import pytest

from puna.worker.child_log import relay_log

pytestmark = pytest.mark.unit


def relayed(*chunks: bytes) -> str:
    async def main() -> str:
        stream, written = asyncio.StreamReader(), []
        relay = asyncio.create_task(relay_log(stream, written.append))
        for chunk in chunks:
            stream.feed_data(chunk)
            await asyncio.sleep(0)
        stream.feed_eof()
        await relay
        return "".join(written)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        (
            [b"worker: INFO loaded\n\tgr", "ö".encode()[:1], "ö".encode()[1:] + b"n\n"],
            "worker: INFO loaded\n\tgrön\n",
        ),
        ([b"\x1b]52;c;cm0gLXJm\x07\r\x00"], "\\x1b]52;c;cm0gLXJm\\x07\\x0d\\x00"),
        (["\x9b31m\x7f".encode()], "\\x9b31m\\x7f"),
        ([b"no text: \xff\xfe\xe2\x82"], "no text: \\xff\\xfe\\xe2\\x82"),
        ([b"x" * 300_000], "x" * 300_000),
    ],
)
def test_a_log_is_passed_on_without_control_characters(chunks: list[bytes], text: str):
    assert relayed(*chunks) == text
