"""The flags of `puna run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
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
    truncate: bool | None = None
    """Of embeddings' inputs that are too long."""
    dimensions: int | None = None
    """Of embeddings."""
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


def parse_truncate(text: str | None) -> bool | None:
    """The value of `--truncate`. Raises CliError."""
    if text is None:
        return None
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise CliError(f'invalid value for --truncate: "{text}" (must be true or false)')
    return text.lower() in ("true", "t", "1")


def parse_keep_alive(text: str | None) -> str | None:
    """The value of `--keepalive`, checked to be a Go duration. Raises CliError."""
    if text is not None:
        try:
            parse_duration(text)
        except ValueError as error:
            raise CliError(str(error)) from None
    return text


def parse_format(text: str | None) -> Any:
    """The value of `--format`: a JSON schema, or the file that has one, is sent as an object.

    Anything else is sent as it is. Raises CliError.
    """
    if text is None or text == "json":
        return text
    if text.lstrip().startswith("{"):
        return _parse_schema(text, "--format")
    if text.endswith(".json") or Path(text).is_file():
        try:
            return _parse_schema(Path(text).expanduser().read_bytes(), text)
        except OSError as error:
            raise CliError(f"--format: {text}: {error.strerror}") from None
    return text


def _parse_schema(data: str | bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CliError(f"{where}: {error}") from None
