"""The flags of `puna run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from puna.cli.client import Json
from puna.cli.errors import CliError
from puna.config.quantities import parse_duration

_THINK_LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The flags of `run`. None means: not given, so the server decides."""

    keep_alive: str | None = None
    think: bool | str | None = None
    format: Any = None
    """"json" or a JSON schema."""
    verbose: bool = False
    hide_thinking: bool = False
    word_wrap: bool = True
    insecure: bool = False
    session: str | None = None

    def request(self, **fields: Any) -> Json:
        """A request with `fields`, and what the flags add to every request."""
        optional = {
            "keep_alive": self.keep_alive,
            "think": self.think,
            "format": self.format,
            "session": self.session,
        }
        return fields | {key: value for key, value in optional.items() if value is not None}


def parse_think(text: str | None) -> bool | str | None:
    """The value of `--think`. Raises CliError."""
    if text is None or text in _THINK_LEVELS:
        return text
    if text in ("true", "false"):
        return text == "true"
    raise CliError(f'invalid value for --think: "{text}" (must be true, false, low, medium, high, or max)')


def parse_keep_alive(text: str | None) -> str | None:
    """The value of `--keepalive`, checked to be a Go duration. Raises CliError."""
    if text is not None:
        try:
            parse_duration(text)
        except ValueError as error:
            raise CliError(str(error)) from None
    return text


def parse_format(text: str | None) -> Any:
    """The value of `--format`: a JSON schema is sent as an object, anything else as it is."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CliError(f"--format: {error}") from None
