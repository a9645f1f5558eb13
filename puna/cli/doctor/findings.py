"""What the doctor finds, and how it is shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

from puna.cli.output.terminal import one_line

Level = Literal["ok", "warning", "error"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `advice` says what could be done about it."""

    area: str
    name: str
    text: str
    level: Level = "ok"
    advice: str = ""


_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}
_COLOURS = {"ok": "32", "warning": "33", "error": "31"}
_WORDS = {"ok": "", "warning": "warning: ", "error": "error: "}


def has_error(findings: Sequence[Finding]) -> bool:
    """Whether something does not work."""
    return any(finding.level == "error" for finding in findings)


def show(findings: Sequence[Finding]) -> None:
    """Prints a section for each area: marks in colour on a terminal, words elsewhere."""
    width = max(len(finding.name) for finding in findings)
    area = ""
    for finding in findings:
        if finding.area != area:
            print(f"{chr(10) if area else ''}  {_styled(finding.area, '1')}")
            area = finding.area
        print(f"    {_mark(finding)}{finding.name.ljust(width)}    {_label(finding)}{one_line(finding.text)}")
        if finding.advice:
            indent = " " * (4 + (2 if sys.stdout.isatty() else 0) + width + 4)
            print(indent + _styled(one_line(finding.advice), "2"))


def _mark(finding: Finding) -> str:
    if not sys.stdout.isatty():
        return ""
    return _styled(_MARKS[finding.level], _COLOURS[finding.level]) + " "


def _label(finding: Finding) -> str:
    return "" if sys.stdout.isatty() else _WORDS[finding.level]


def _styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() else text
