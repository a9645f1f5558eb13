"""puna/_native.pyi, written by hand, names exactly what the native module has.

mypy's stubtest cannot say so: it takes nanobind's own kinds of class and function for differences.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from puna import _native

pytestmark = pytest.mark.native

Names = dict[str, set[str]]  # class, or "" for the module -> public names


def in_stub() -> Names:
    stub = Path(_native.__file__).parent / "_native.pyi"
    if not stub.exists():  # an editable install keeps the module and the stub apart
        stub = Path(__file__).parents[1] / "puna" / "_native.pyi"
    names: Names = {"": set()}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names[""].add(node.name)
            names[node.name] = {_name(member) for member in node.body} - {""}
        elif isinstance(node, ast.FunctionDef):
            names[""].add(node.name)
    return names


def _name(member: ast.stmt) -> str:
    if isinstance(member, ast.FunctionDef):
        name = member.name
    elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
        name = member.target.id
    else:
        return ""
    return "" if name.startswith("_") else name


def in_module() -> Names:
    names: Names = {"": {name for name in vars(_native) if not name.startswith("_")}}
    for name in names[""]:
        member = getattr(_native, name)
        if isinstance(member, type):
            names[name] = {attribute for attribute in vars(member) if not attribute.startswith("_")}
    return names


def test_stub_and_module_have_the_same_names() -> None:
    assert in_stub() == in_module()
