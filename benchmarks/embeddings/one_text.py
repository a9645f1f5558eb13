"""How long a server takes for one text, as its client's socket sees it.

One text after the other, in runs of some for each server in turn. Behind its last answer a server's threads
may spin for milliseconds, as llama.cpp's do: the next server is asked when they sleep, or it would be
measured beside them.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Sequence
from statistics import median

import httpx

from benchmarks.retrieval.turn import Endpoint

_WARM_UP = 20
_RUN = 20
"""Texts."""
_PAUSE_S = 0.1
_TIMEOUT_S = 60.0


class _Connection:
    """A client's library would take as long as a small encoder, so there is none."""

    def __init__(self, endpoint: Endpoint) -> None:
        url = endpoint.http.base_url
        self._http = http.client.HTTPConnection(url.host, url.port, timeout=_TIMEOUT_S)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._model = endpoint.model

    def seconds(self, text: str) -> float:
        body = json.dumps({"model": self._model, "input": [text]})
        start = time.perf_counter()
        self._http.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        reply = self._http.getresponse()
        reply.read()
        took_s = time.perf_counter() - start
        if reply.status != httpx.codes.OK:
            raise RuntimeError(f"a text of {self._model}: status {reply.status}")
        return took_s

    def close(self) -> None:
        self._http.close()


def median_seconds(endpoints: Sequence[Endpoint], texts: Sequence[str]) -> list[float]:
    """Of each server."""
    connections = [_Connection(endpoint) for endpoint in endpoints]
    times: list[list[float]] = [[] for _ in endpoints]
    try:
        for connection in connections:
            for text in texts[:_WARM_UP]:
                connection.seconds(text)
        for start in range(0, len(texts), _RUN):
            for connection, its in zip(connections, times, strict=True):
                time.sleep(_PAUSE_S)
                its += [connection.seconds(text) for text in texts[start : start + _RUN]]
    finally:
        for connection in connections:
            connection.close()
    return [median(its) for its in times]
