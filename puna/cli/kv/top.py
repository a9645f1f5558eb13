"""`puna kv top`: the memory that all models share, as it changes."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from puna.cli.client import Client, Json
from puna.cli.kv.stats import kv_bytes, model_lines, show_stats, used_bytes, weight_bytes
from puna.config.sizes import binary_size

_INTERVAL_S = 1.0
_LEGEND = "# in use  = cached or spare  - free"
_MIN_WIDTH = 56
"""For less there are no bars, only their figures."""


class _Bar(NamedTuple):
    """How full something is, in bytes."""

    label: str
    used: int
    other: int
    """Taken, but given up when it is needed."""
    limit: int


def top(client: Client) -> None:
    """Shows the table until `q` or Ctrl-C; once where it could not be replaced."""
    console = Console()
    if not sys.stdout.isatty() or console.is_dumb_terminal:  # the console may be told to be a terminal
        show_stats(client)
        return
    memory = client.get("/api/kv")  # before the screen changes, so that an error leaves it alone
    # On a screen of its own: whatever was on the terminal is there again afterwards.
    with (
        suppress(KeyboardInterrupt),
        _keyboard() as pressed,
        Live(_view(memory, console.width), console=console, screen=True, auto_refresh=False) as live,
    ):
        while "q" not in pressed(_INTERVAL_S):
            memory = client.get("/api/kv")
            live.update(_view(memory, console.width), refresh=True)


def _view(memory: Json, width: int) -> Group:
    bars = [_bar_line(bar, width) for bar in _bars(memory)]
    explained = f"{'':8}{_LEGEND}" if width >= _MIN_WIDTH else ""
    legend = Text(f"{explained:<{max(width - 9, 0)}}q: quit", style="dim", no_wrap=True, overflow="crop")
    lines = model_lines(memory, width) or ["no model is loaded"]
    models = [Text(line, no_wrap=True, overflow="crop", style=_style(line)) for line in lines]
    return Group(*bars, legend, Text(), *models)


def _style(line: str) -> str:
    return "bold" if line.startswith("NAME ") else "dim" if line.endswith("asleep") else ""


def _bars(memory: Json) -> Iterator[_Bar]:
    used, committed, weights = used_bytes(memory), kv_bytes(memory), weight_bytes(memory)
    yield _Bar("KV", used, committed - used, memory["kv_limit"])
    yield _Bar("memory", weights + used, committed - used, memory["memory_limit"])
    if disk := memory["disk"]:
        yield _Bar("disk", 0, disk["size"], disk["limit"])


def _bar_line(bar: _Bar, width: int) -> Text:
    """`KV      [####===-----]  1.25 GiB of 4 GiB  31%`, or without the bar."""
    taken, limit = bar.used + bar.other, max(bar.limit, 1)
    figures = f"{binary_size(taken):>8} of {binary_size(bar.limit):<8} {taken / limit:>4.0%}"
    if width < _MIN_WIDTH:
        return Text(f"{bar.label:<8}{figures:>{max(width - 8, 0)}}", no_wrap=True, overflow="crop")
    num_cells = width - 8 - 2 - 2 - len(figures)
    num_taken = min(-(-taken * num_cells // limit), num_cells)  # whatever is there is seen
    num_used = min(-(-bar.used * num_cells // limit), num_taken)
    cells = "#" * num_used + "=" * (num_taken - num_used)
    # Memory that is full of what can go is full use of memory.
    color = "green" if bar.used * 2 < limit else "yellow" if bar.used * 5 < limit * 4 else "red"
    free = "-" * (num_cells - num_taken)
    line = Text.assemble(f"{bar.label:<8}[", (cells, color), (free, "dim"), f"]  {figures}")
    line.no_wrap, line.overflow = True, "crop"
    return line


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


@contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for keys and returns them; they are not echoed."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()

    def pressed(seconds: float) -> str:
        if not select.select([descriptor], [], [], seconds)[0]:
            return ""
        return os.read(descriptor, 64).decode(errors="replace") or "q"  # nothing: the terminal is gone

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
