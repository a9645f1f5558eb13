"""Starting Python so that it runs no code from the current directory, which may be full of downloads."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_PATH_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Where code is searched for, and an empty or relative entry stands for something in the current directory."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Runs an installed module. Without -P, `-m` puts the current directory before the standard library."""
    return [sys.executable, "-P", "-m", module, *arguments]


def with_absolute_paths(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, without those entries of search paths that stand for the current directory."""
    kept = dict(environ)
    for name in _PATH_VARIABLES:
        if entries := absolute_entries(kept.pop(name, "")):
            kept[name] = os.pathsep.join(entries)
    return kept


def absolute_entries(search_path: str) -> list[str]:
    return [entry for entry in search_path.split(os.pathsep) if os.path.isabs(entry)]


def forget_current_directory() -> None:
    """Takes the current directory off this process's sys.path, unless PYTHONPATH names it in full.

    `python -m` puts it there, and so does an empty or relative entry of PYTHONPATH. Modules that were imported
    before are not affected: to be called first of all.
    """
    given = os.environ.get("PYTHONPATH", "")
    if not Path(".").exists():  # it was removed: there is nothing in it to run
        return
    trusted = absolute_entries(given)
    current = {"", *(os.path.abspath(entry) for entry in given.split(os.pathsep) if entry not in trusted)}
    # What comes before the standard library is by PYTHONPATH or by the way of starting; what follows is installed.
    standard_library = os.path.dirname(os.__file__)
    end = sys.path.index(standard_library) if standard_library in sys.path else len(sys.path)
    head = [entry for entry in sys.path[:end] if entry in trusted or os.path.abspath(entry) not in current]
    sys.path[:end] = head
