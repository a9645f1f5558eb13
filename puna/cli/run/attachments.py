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


def attach_files(text: str, capabilities: Sequence[str]) -> tuple[str, list[str]]:
    """(text without the paths, the files' contents in Base64), for what the model sees or hears.

    A path begins with `/`, `./`, `../` or `~/`, and may be quoted or have its blanks escaped, as terminals
    write it when a file is dropped there. What names no file stays text, and so, with a warning, does what
    the model neither sees nor hears. Raises CliError for files that cannot be sent.
    """
    known = _suffixes(capabilities)
    contents = []

    def attach(match: re.Match[str]) -> str:
        path = Path(match[2] or re.sub(r"\\(.)", r"\1", match[3])).expanduser()
        if not path.is_file():
            return match[0]
        if path.suffix[1:].lower() not in known:
            print(
                f"Warning: this model takes no {path.suffix[1:].upper()}: '{one_line(str(path))}' stays text",
                file=sys.stderr,
            )
            return match[0]
        contents.append(_read(path))
        print(f"Added image '{one_line(str(path))}'", file=sys.stderr)
        return ""

    text = _paths(_suffixes(tuple(_SUFFIXES))).sub(attach, text)
    return (text.strip(), contents) if contents else (text, [])


def starts_with_file(text: str, capabilities: Sequence[str]) -> bool:
    """Whether what looks like a command is the path of a file to attach."""
    known = _suffixes(capabilities)
    return bool(known) and _paths(known).match(text) is not None


def _suffixes(capabilities: Sequence[str]) -> list[str]:
    return [suffix for kind, known in _SUFFIXES.items() if kind in capabilities for suffix in known]


def _paths(suffixes: Sequence[str]) -> re.Pattern[str]:
    """Group 1: the quote, if there is one; group 2: the path between quotes; group 3: the path without."""
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
