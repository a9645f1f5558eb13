"""Imports run downward: rooms know only those below them, and no modules import each other in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import puna

pytestmark = pytest.mark.unit

ROOT = Path(puna.__file__).parent

# From above to below; rooms of one line do not know each other. Modules that lie in no room are their own.
ROOMS = """
cli
api
daemon
kvcached
worker llm bench
local http
chat registry convert
tokenizer engine gotemplate
kv
backends
models
graph gguf
config
interpreter lazy unix_socket
""".strip().splitlines()
LEVELS = {room: level for level, rooms in enumerate(ROOMS) for room in rooms.split()}


def imports() -> dict[str, set[str]]:
    """Modules of the package by module, those imported for types only and in functions as well.

    The package itself is left out: its names are those of the library's face, imported when they are used.
    """
    files = {_name(path): path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"}
    return {name: set(_imported(name, path, files)) for name, path in files.items()}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(name: str, path: Path, files: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [submodule if submodule in files else str(node.module) for submodule in submodules]
        yield from (other for other in found if other in files and other != name)


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_room_has_a_place():
    assert {room(module) for module in imports()} <= LEVELS.keys()


def test_rooms_import_only_what_is_below_them():
    upward = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if room(module) != room(other) and LEVELS[room(module)] >= LEVELS[room(other)]
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle():
    left = imports()
    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}
    assert sorted(left) == []  # what is in a circle, and what imports it


def test_rooms_of_the_engine_are_in_no_circle():
    names = {module for module in imports() if module.startswith("puna.engine.") and module.count(".") == 2}
    left: dict[str, set[str]] = {name: set() for name in names}
    for module, others in imports().items():
        found = {".".join(other.split(".")[:3]) for other in others if other.startswith("puna.engine.")}
        if (own := ".".join(module.split(".")[:3])) in left:
            left[own] |= found & names - {own}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    assert sorted(left) == []


def test_the_daemon_does_without_numpy_and_the_engine():
    code = "import sys, puna.cli.main, puna.api.app, puna.daemon.server; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "puna.engine.core", "puna.tokenizer.tokenizer"} & set(imported.split())
