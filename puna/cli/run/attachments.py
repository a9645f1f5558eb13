"""Images and sounds whose paths stand in a prompt: they are sent along, and their paths leave the text."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from puna.cli.errors import CliError
from puna.cli.output.terminal import one_line

_SUFFIXES = {"vision": ("jpg", "jpeg", "png", "webp"), "audio": ("wav",)}
_MAX_BYTES = 100 << 20
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF")  # JPEG, PNG; WebP and WAV


def can_attach(capabilities: Sequence[str]) -> bool:
    """Whether the model sees or hears."""
    return any(capability in capabilities for capability in _SUFFIXES)


def attach_files(text: str, capabilities: Sequence[str]) -> tuple[str, list[str]]:
    """(text without the paths, the files' contents in Base64), for what the model sees or hears.

    A path begins with `/`, `./`, `../` or `~/`, and may be quoted or have its blanks escaped, as terminals
    write it when a file is dropped there. What names no file stays text. Raises CliError for files that
    cannot be sent.
    """
    if (pattern := _pattern(capabilities)) is None:
        return text, []
    contents = []

    def attach(match: re.Match[str]) -> str:
        path = Path(match[2] or re.sub(r"\\(.)", r"\1", match[3])).expanduser()
        if not path.is_file():
            return match[0]
        contents.append(_read(path))
        print(f"Added image '{one_line(str(path))}'", file=sys.stderr)
        return ""

    text = pattern.sub(attach, text)
    return (text.strip(), contents) if contents else (text, [])


def starts_with_file(text: str, capabilities: Sequence[str]) -> bool:
    """Whether what looks like a command is the path of a file to attach."""
    pattern = _pattern(capabilities)
    return pattern is not None and pattern.match(text) is not None


def _pattern(capabilities: Sequence[str]) -> re.Pattern[str] | None:
    """Group 1: the quote, if there is one; group 2: the path between quotes; group 3: the path without."""
    suffixes = [suffix for kind, known in _SUFFIXES.items() if kind in capabilities for suffix in known]
    if not suffixes:
        return None
    start, end = r"(?:\.{1,2}/|~/|/)", rf"\.(?i:{'|'.join(suffixes)})"
    quoted = rf"(['\"])({start}(?:(?!\1).)*?{end})\1"
    return re.compile(rf"(?<!\S)(?:{quoted}|({start}(?:\\.|\S)*?{end})(?!\w))")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CliError(f"{path}: file size exceeds maximum limit (100MB)")
        data = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    if not data.startswith(_MAGIC):
        raise CliError(f"{path}: not an image in JPEG, PNG or WebP, and no WAV")
    return base64.b64encode(data).decode()
