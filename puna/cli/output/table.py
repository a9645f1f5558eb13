"""Tables without borders: left aligned, four spaces between columns."""

from __future__ import annotations

from collections.abc import Sequence

from puna.cli.output.terminal import one_line

_GAP = " " * 4


def table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """The rows as lines, each column as wide as its widest cell. What cells hold may come from anywhere."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append((indent + _GAP.join(cells)).rstrip())
    return "\n".join(lines)
