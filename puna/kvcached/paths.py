"""Where libkvcached and its headers are installed."""

from __future__ import annotations

from pathlib import Path

from puna import _native

# An editable install keeps what was compiled apart from the Python sources.
_ROOT = Path(_native.__file__).parent


def include_dir() -> Path:
    """Directory of kvcached.h and kvcached_bridge.h."""
    return _ROOT / "include"


def library_path() -> Path:
    """libkvcached.so."""
    return _ROOT / "lib" / "libkvcached.so"


def pkgconfig_dir() -> Path:
    """Directory of kvcached.pc, for PKG_CONFIG_PATH."""
    return _ROOT / "lib" / "pkgconfig"


def proto_path() -> Path:
    """kvcached.proto, from which clients of the service are generated."""
    return Path(__file__).parent / "kvcached.proto"
