"""Starting Python so that it runs no code from the current directory, which may be full of downloads."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_PATH_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Where code is searched for: an empty or relative entry stands for something in the current directory."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Runs an installed module. Without -P, `-m` puts the current directory before the standard library."""
    return [sys.executable, "-P", "-m", module, *arguments]


def with_absolute_paths(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, without those entries of search paths that stand for the current directory."""
    kept = dict(environ)
    for name in _PATH_VARIABLES:
        entries = kept.pop(name, "").split(os.pathsep)
        if absolute := [entry for entry in entries if Path(entry).is_absolute()]:
            kept[name] = os.pathsep.join(absolute)
    return kept
