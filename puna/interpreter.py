"""Starting Python so that it runs no code from the current directory, which may be full of downloads."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

_SEPARATORS = {"PYTHONPATH": ":", "LD_LIBRARY_PATH": "[:;]", "LD_PRELOAD": "[: ]"}
"""Where code is searched for: an empty or relative entry stands for something in the current directory."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Runs an installed module. Without -P, `-m` puts the current directory before the standard library."""
    return [sys.executable, "-P", "-m", module, *arguments]


def with_absolute_paths(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, without those entries of search paths that stand for the current directory."""
    kept = dict(environ)
    for name, separators in _SEPARATORS.items():
        entries = re.split(separators, kept.pop(name, ""))
        if trusted := [entry for entry in entries if _is_trusted(name, entry)]:
            kept[name] = ":".join(trusted)
    return kept


def _is_trusted(name: str, entry: str) -> bool:
    is_library = name == "LD_PRELOAD" and entry and "/" not in entry  # looked for on LD_LIBRARY_PATH
    return is_library or Path(entry).is_absolute()
