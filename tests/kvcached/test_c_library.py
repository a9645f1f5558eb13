"""libkvcached from C: every function and every error, from many threads, and when the system refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from puna import kvcached
from tests.kvcached.conftest import PROGRAMS, compile_program, run_program

pytestmark = pytest.mark.native


def run_c(name: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    flags = ["-std=gnu11", "-Wstrict-prototypes", "-rdynamic"]
    return run_program(compile_program("cc", [PROGRAMS / f"{name}.c"], scratch / name, flags))


@pytest.mark.parametrize("name", ["contexts", "pools", "rollback", "threads"])
def test_program(name: str, tmp_path: Path):
    run_c(name, tmp_path)


def test_bridge_and_its_log(tmp_path: Path):
    log = run_c("bridge", tmp_path).stderr
    warnings, _, rest = log.partition("-- debug\n")
    verbose, _, errors = rest.partition("-- error\n")
    assert "kvcached: ERROR: kvcached_bridge_init_kvcached: there is no device" in warnings
    assert "INFO" not in warnings
    assert "DEBUG" not in warnings
    assert "kvcached: INFO: initialized, with a limit of " in verbose
    assert "kvcached: DEBUG: kvcached_bridge_init_kvcached: done" in verbose
    assert errors == "kvcached: ERROR: kvcached_bridge_alloc_kv: num_blocks is -3\n"


def test_headers_are_cplusplus_too(tmp_path: Path):
    source = tmp_path / "main.cpp"
    source.write_text('#include "kvcached_bridge.h"\nint main() { return kvcached_bridge_init(); }\n')
    run_program(compile_program("c++", [source], tmp_path / "main", ["-std=c++17"]))


def test_only_the_c_interface_is_exported():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm")
    listing = subprocess.run(
        [nm, "-D", "--defined-only", str(kvcached.library_path())], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert {"kvcached_init", "kvcached_bridge_alloc_kv", "kvcached_pool_alloc"} <= names
    assert all(name.startswith("kvcached_") for name in names)


def test_it_needs_no_python():
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("there is no readelf")
    dynamic = subprocess.run(
        [readelf, "-d", str(kvcached.library_path())], capture_output=True, text=True, check=True
    )
    assert "NEEDED" in dynamic.stdout
    assert "python" not in dynamic.stdout
