"""What a child of the daemon is started with: an interpreter that trusts no directory, and a few variables.

Whoever takes over a child finds none of the secrets that the daemon's environment may hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from puna.interpreter import python_command as python_command
from puna.interpreter import with_absolute_paths

_NAMES = {
    *("HOME", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),  # where puna is installed
    *("LANG", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES"),
}
_PREFIXES = ("LC_", "MALLOC_", "ASAN_", "LSAN_", "UBSAN_")


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of `environ` (default: this process's), what Python and the C library read."""
    environ = os.environ if environ is None else environ
    kept = {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}
    # NumPy's BLAS would start threads when it is imported, before the cage that is to hold for every thread.
    return {**with_absolute_paths(kept), "OPENBLAS_NUM_THREADS": "1"}
