"""Names of a package that are imported when they are first used.

The daemon uses parts of packages whose other parts need NumPy, which takes nearly as long to import as all
that the daemon is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """To be the package's `__getattr__`. modules: where each name is defined."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find
