"""The error for requests beyond those that may wait."""

from __future__ import annotations


class ServerBusy(RuntimeError):
    """More requests wait than the settings allow, be it for a model to load or to be computed."""

    def __init__(self) -> None:
        super().__init__("server busy, please try again.  maximum pending requests exceeded")
