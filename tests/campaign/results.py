"""What a campaign found, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Row:
    """One kind of fault."""

    name: str
    num_faults: int = 0
    num_failed: int = 0
    """Requests that ended with a clear error, or cut off, as they may."""
    recoveries_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    note: str = ""


def table(rows: Iterable[Row]) -> str:
    lines = [f"{'fault':<46} {'times':>5} {'failed':>6} {'normal again after':>20} {'wrong':>5}"]
    lines.append(f"{'':<46} {'':>5} {'reqs':>6} {'median':>9} {'slowest':>10} {'':>5}")
    for row in rows:
        times = sorted(row.recoveries_s)
        shown = (f"{times[len(times) // 2]:.2f} s", f"{times[-1]:.2f} s") if times else ("-", "-")
        line = f"{row.name:<46} {row.num_faults:>5} {row.num_failed:>6} {shown[0]:>9} {shown[1]:>10}"
        lines.append(f"{line} {len(row.violations):>5}{'  ' + row.note if row.note else ''}")
    return "\n".join(lines)
