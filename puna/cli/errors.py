"""Errors that a command reports as `Error: <text>` and exit status 1."""

from __future__ import annotations


class CliError(Exception):
    """The command cannot go on; the text is for the user."""


class NotRunning(CliError):
    """No server answers."""

    def __init__(self) -> None:
        super().__init__("could not connect to puna server, run 'puna serve' to start it")


class ServerError(CliError):
    """The server answered with an error; `status` is the HTTP status (200 for one inside a stream)."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status
