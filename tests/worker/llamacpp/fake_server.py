"""Answers as llama.cpp's server does, on a Unix socket, with what a test gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class FakeServer:
    """replies: by path, a value, or bytes as they are. events: of completions, in their order."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {}
        self.status = 200
        self.events: list[Json | bytes] = []
        self.is_endless = False
        """Completions do not end with their last event."""
        self.asked: list[tuple[str, Json]] = []
        self.has_gone = asyncio.Event()
        """A client has closed a completion that is endless."""

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._serve, path)
        async with server:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        lengths = [line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length")]
        body = await reader.readexactly(int(lengths[0])) if lengths else b""
        path = head.split()[1]
        self.asked.append((path, json.loads(body) if body else {}))
        writer.write(f"HTTP/1.1 {self.status} x\r\nConnection: close\r\n\r\n".encode())
        if path == "/completion" and self.status == 200:
            for event in self.events:
                writer.write(event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode())
                await writer.drain()
            if self.is_endless:
                await reader.read()
                self.has_gone.set()
        else:
            writer.write(json.dumps(self.replies[path]).encode())
        writer.close()


def token(number: int, text: str, **more: Any) -> Json:
    """An event with one token."""
    return {"content": text, "tokens": [number], "stop": False, **more}


def last(stop_type: str, num_tokens: int = 1, **more: Any) -> Json:
    """The event at the end of a completion."""
    timings = {"cache_n": 1, "prompt_n": 2, "prompt_ms": 1.5, "predicted_ms": 2.5}
    counts = {"tokens_predicted": num_tokens, "tokens_evaluated": 3, "timings": timings}
    return {"content": "", "tokens": [], "stop": True, "stop_type": stop_type, **counts, **more}
