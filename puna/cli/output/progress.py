"""Progress of transfers: bars in a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from puna.cli.output.human import human_size
from puna.cli.output.terminal import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_MAX_BAR = 40
_WIDTH_FOR_SIZE, _WIDTH_FOR_SPEED = 56, 72  # columns of a terminal


class ProgressDisplay(Protocol):
    """Shows the statuses of one operation, in order."""

    def status(self, text: str) -> None:
        """A step without a size begins."""

    def transfer(self, text: str, completed: int, total: int | None) -> None:
        """`completed` of `total` bytes of the step `text` are done."""


@contextmanager
def progress_display() -> Iterator[ProgressDisplay]:
    """The display that suits standard error."""
    if sys.stderr.isatty():
        with _Bars() as bars:
            yield bars
    else:
        yield _Lines()


def read_with_progress(path: Path, label: str, display: ProgressDisplay) -> Iterator[bytes]:
    """The file's bytes, piece by piece, counted on the display."""
    total, completed = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
            completed += len(chunk)
            display.transfer(label, completed, total)


def show_statuses(statuses: Iterable[dict[str, object]], display: ProgressDisplay) -> None:
    """Shows the progress objects of pull or create."""
    for progress in statuses:
        text, total, completed = progress.get("status"), progress.get("total"), progress.get("completed")
        text = one_line(str(text))
        if total is None and completed is None:
            display.status(text)
        else:
            display.transfer(text, int(str(completed or 0)), int(str(total)) if total is not None else None)


class _Lines:
    """Each step once, without control characters."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def status(self, text: str) -> None:
        self._print(text)

    def transfer(self, text: str, completed: int, total: int | None) -> None:
        if not total:
            self._print(text)
            return
        tenths = 10 * completed // total  # a log needs no line for every megabyte
        self._print(f"{text}: {10 * tenths}% of {human_size(total)}")

    def _print(self, line: str) -> None:
        if line not in self._shown:
            self._shown.add(line)
            print(line, file=sys.stderr, flush=True)


class _Bars:
    """A bar for each transfer. A step without a size is a line below the bars before it."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_bars()

    def status(self, text: str) -> None:
        self._end_bars()
        print(text, file=sys.stderr, flush=True)

    def transfer(self, text: str, completed: int, total: int | None) -> None:
        if self._bars is None:
            self._bars = _new_bars()
            self._bars.start()
        if text not in self._tasks:
            self._tasks[text] = self._bars.add_task(_DIGEST.sub(r"\1", text), total=total)
        self._bars.update(self._tasks[text], completed=completed, total=total)

    def _end_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars, self._tasks = None, {}


def _new_bars() -> Progress:
    """Each bar on one line, however narrow the terminal is: the bar itself gives way first."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    from rich.table import Column

    console = Console(stderr=True)
    whole = Column(no_wrap=True)
    columns = [
        TextColumn("{task.description}:", markup=False, table_column=whole),
        TextColumn("{task.percentage:>3.0f}%", table_column=whole),
        BarColumn(bar_width=None, table_column=Column(max_width=_MAX_BAR)),
    ]
    if console.width >= _WIDTH_FOR_SIZE:
        columns.append(DownloadColumn(table_column=whole))
    if console.width >= _WIDTH_FOR_SPEED:
        columns.append(TransferSpeedColumn(table_column=whole))
    return Progress(*columns, console=console)
