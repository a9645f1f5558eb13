"""ggml's buffer type on top of libkvcached, compiled with the ggml of the libggml-python wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.kvcached.conftest import PROGRAMS, compile_program, run_program

pytestmark = pytest.mark.native

SOURCES = Path(__file__).parents[2] / "native" / "ggml_kvcached"


def ggml_root() -> Path:
    spec = importlib.util.find_spec("libggml")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package libggml-python is not installed")
    return Path(spec.submodule_search_locations[0])


def test_tensors_in_the_buffer_type_are_as_good_as_ggmls_own(tmp_path: Path):
    root = ggml_root()
    libraries = next(path.parent for path in root.glob("lib*/libggml-base.so"))
    flags = ["-std=c++17", f"-I{SOURCES}", f"-I{root / 'include'}", f"-L{libraries}"]
    flags += ["-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{libraries}"]
    sources = [PROGRAMS / "ggml.cpp", SOURCES / "ggml_kvcached.cpp"]
    run_program(compile_program("c++", sources, tmp_path / "ggml", flags))
