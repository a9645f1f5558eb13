"""Requests that are refused before any application sees them."""

from __future__ import annotations

from puna.http.exchange import encode_head


class Refusal(Exception):
    """What was sent is no request that can be answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def reply(self) -> bytes:
        """In plain text, since it is not known which protocol the client speaks; the connection ends."""
        text = f"{self}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        return encode_head(self.status, headers) + text
