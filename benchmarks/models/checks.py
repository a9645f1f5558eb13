"""Which of the tests pass, told from a run of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

_MODULES = (
    "tests/oracle/test_encoders.py",
    "tests/oracle/test_models.py",
    "tests/engine/test_encoders.py",
    "tests/engine/test_every_architecture.py",
    "tests/engine/test_invariance.py",
)
_WEIGHT_TYPE = re.compile(r"-([A-Z]\w*)$")

Checks = dict[str, Counter[str]]
"""Kind of check (f32, quantized, batches) -> "passed" or "failed" -> how many."""


def run_checks(report: Path, names: Collection[str]) -> dict[str, Checks]:
    """Runs the tests that every row of tests/tiny goes through; row -> what became of them.

    report: where pytest writes what it found, as JUnit's XML.
    """
    side_by_side = ["--numprocesses", "2", "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *side_by_side, *_MODULES]
    subprocess.run(command, check=False)  # tests that fail are what is to be told
    found: dict[str, Checks] = defaultdict(lambda: defaultdict(Counter))
    longest_first = sorted(names, key=len, reverse=True)
    for case in ElementTree.parse(report).iter("testcase"):
        if (bracket := re.search(r"\[(.*)\]$", case.get("name", ""))) is None or case.find(
            "skipped"
        ) is not None:
            continue
        row = next((name for name in longest_first if f"{bracket[1]}-".startswith(f"{name}-")), None)
        if row is not None:
            kind = _kind(case.get("classname", ""), bracket[1])
            is_bad = case.find("failure") is not None or case.find("error") is not None
            found[row][kind]["failed" if is_bad else "passed"] += 1
    return found


def _kind(module: str, parameters: str) -> str:
    if ".engine." in module:
        return "batches"
    return "quantized" if _WEIGHT_TYPE.search(parameters) else "f32"
