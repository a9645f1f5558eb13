"""One HTTP request of a client that sees exactly how the reply ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Answer:
    """What came until the reply's end, the client's leaving, or a cut."""

    status: int = 0
    """0: not even a status."""
    content: bytes = b""
    is_whole: bool = False
    """It ended as HTTP says it does."""


async def ask(
    port: int, method: str, path: str, body: bytes = b"", *, leave_after: int | None = None
) -> Answer:
    """leave_after: closes the connection when so many bytes of content have come. Never raises OSError: a
    connection that fails is an answer that is not whole."""
    answer = Answer()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return answer
    try:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await _read(reader, answer, leave_after)
    except (OSError, asyncio.IncompleteReadError, ValueError):
        pass
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
    return answer


async def ask_json(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """(status, what the reply says); status 0 if there was no whole reply."""
    answer = await ask(port, method, path, b"" if body is None else json.dumps(body).encode())
    if not answer.is_whole:
        return 0, None
    try:
        return answer.status, json.loads(answer.content or b"null")
    except ValueError:
        return answer.status, answer.content.decode(errors="replace")


async def _read(reader: asyncio.StreamReader, answer: Answer, leave_after: int | None) -> None:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    answer.status = int(status.split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") != "chunked":
        answer.content = await reader.readexactly(int(headers.get("content-length", "0")))
        answer.is_whole = True
        return
    while leave_after is None or len(answer.content) < leave_after:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            answer.is_whole = True
            return
        answer.content += chunk[:-2]
