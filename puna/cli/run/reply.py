"""Showing a reply while it arrives: word wrap, thinking, spinner, statistics."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from puna.cli.client import Json
from puna.cli.output.human import go_duration
from puna.cli.output.terminal import fit_for

_MARGIN = 5
_GREY, _PLAIN = "\x1b[90m", "\x1b[0m"


class WordWrap:
    """Writes to a terminal without breaking words.

    Text appears as it arrives; when a word turns out not to fit, what is shown of it is erased and the
    word begins on the next line.
    """

    def __init__(self, out: TextIO, width: int | None = None) -> None:
        self._out = out
        self._width = width
        self._column = 0
        self._word = ""

    def write(self, text: str) -> None:
        """Shows more text; widths are those of the terminal's cells."""
        from rich.cells import cell_len

        limit = self._width or max(shutil.get_terminal_size().columns - _MARGIN, 1)
        shown = []
        for character in text:
            width = cell_len(character)
            if character == "\n":
                self._column, self._word = 0, ""
            elif character.isspace():
                self._column, self._word = self._column + width, ""
            else:
                word_width = cell_len(self._word)
                if self._column + width > limit and self._column > word_width:
                    erase = f"\x1b[{word_width}D\x1b[K" if word_width else ""
                    shown.append(f"{erase}\n{self._word}")
                    self._column = word_width
                self._column += width
                self._word += character
            shown.append(character)
        self._out.write("".join(shown))


class ReplyDisplay:
    """Prints the pieces of one reply; thinking is marked off, or left out."""

    def __init__(self, out: TextIO, *, wrap: bool, hide_thinking: bool = False) -> None:
        self._out = out
        self._writer = WordWrap(out) if wrap else out
        self._hide_thinking = hide_thinking
        self._thinking = False
        self._after_thinking = False

    def show(self, thinking: str, content: str) -> None:
        """More of the reply; either may be empty."""
        thinking, content = fit_for(self._out, thinking), fit_for(self._out, content)
        if thinking:
            self._after_thinking = True
            self._show_thinking(thinking)
        if content:
            self._end_thinking()
            if self._after_thinking:  # templates leave blank lines between the two
                content = content.lstrip("\n")
                self._after_thinking = not content
            self._writer.write(content)
        self._out.flush()

    def _show_thinking(self, text: str) -> None:
        if self._hide_thinking:
            return
        if not self._thinking:
            self._thinking = True
            self._out.write("Thinking...\n" + self._colour(_GREY))
        self._writer.write(text)

    def finish(self) -> None:
        """Ends the line, also after a reply that was broken off."""
        self._end_thinking()
        self._writer.write("\n")
        self._out.flush()

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._out.write(self._colour(_PLAIN))
            self._writer.write("\n...done thinking.\n\n")

    def _colour(self, code: str) -> str:
        return code if self._out.isatty() else ""


@contextmanager
def spinner() -> Iterator[None]:
    """Turns on standard error while the block runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(""):
        yield


def with_spinner(stream: Iterator[Json]) -> Iterator[Json]:
    """The stream; a spinner turns until its first object arrives."""
    with spinner():
        first = next(stream, None)
    if first is not None:
        yield first
        yield from stream


def statistics(final: Json) -> str:
    """The lines that `--verbose` prints, from a reply's last object; values of zero are left out."""
    lines = []
    for label, key in (("total duration", "total_duration"), ("load duration", "load_duration")):
        if nanoseconds := final.get(key):
            lines.append(_line(label, go_duration(nanoseconds)))
    for label in ("prompt eval", "eval"):
        key = label.replace(" ", "_")
        count, nanoseconds = final.get(f"{key}_count"), final.get(f"{key}_duration")
        if count:
            lines.append(_line(f"{label} count", f"{count} token(s)"))
        if nanoseconds:
            lines.append(_line(f"{label} duration", go_duration(nanoseconds)))
        if count and nanoseconds:
            lines.append(_line(f"{label} rate", f"{count / nanoseconds * 1e9:.2f} tokens/s"))
    return "\n".join(lines)


def _line(label: str, value: str) -> str:
    return f"{label + ':':<22}{value}"
