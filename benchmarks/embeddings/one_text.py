"""How long a server takes for one text, as its client's socket sees it."""

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
    """Of each server, asked in turns: what else the machine does meanwhile hits all of them alike."""
    connections = [_Connection(endpoint) for endpoint in endpoints]
    try:
        for text in texts[:_WARM_UP]:
            for connection in connections:
                connection.seconds(text)
        rounds = [[connection.seconds(text) for connection in connections] for text in texts]
        return [median(times) for times in zip(*rounds, strict=True)]
    finally:
        for connection in connections:
            connection.close()
