"""Text from elsewhere on a terminal: what a terminal would take for a command is shown instead of sent.

Names, errors, replies, licenses, all that a server, a model or its file says may hold escape sequences: they
move the cursor, rewrite what was printed, put text on the clipboard (OSC 52), or have the terminal type. Each
character is looked at by itself, so it does not matter in which pieces a sequence comes.
"""

from __future__ import annotations

import re
import sys
from typing import TextIO

# C0 without newline and tab, DEL, C1; marks that turn the direction of what follows; separators of lines;
# halves of characters, which cannot be printed at all.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with controls as `\\x1b` or `\\u202e`; newlines and tabs stay."""
    if text.isprintable():
        return text
    return _CONTROLS.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """As printable(), and with newlines and tabs as `\\n` and `\\t`."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def fit_for(out: TextIO, text: str) -> str:
    """printable(text) for a terminal; as it is for a file or a pipe, where it is data."""
    return printable(text) if out.isatty() else text


def print_text(text: str) -> None:
    """Prints it to standard output, as fits there."""
    print(fit_for(sys.stdout, text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
