"""Compiles the programs beside this file against the library and headers that are installed with puna."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from puna import kvcached

PROGRAMS = Path(__file__).parent / "programs"


def require(compiler: str) -> str:
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"there is no compiler {compiler}")
    return path


def kvcached_flags() -> list[str]:
    """What pkg-config says, or would say."""
    library = kvcached.library_path().parent
    if shutil.which("pkg-config") is None:
        flags = [f"-I{kvcached.include_dir()}", f"-L{library}", "-lkvcached"]
    else:
        output = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "kvcached"],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PKG_CONFIG_PATH": str(kvcached.pkgconfig_dir())},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        flags = shlex.split(output.stdout)
    return [*flags, f"-Wl,-rpath,{library}"]


def compile_program(compiler: str, sources: Sequence[Path], target: Path, flags: Sequence[str]) -> Path:
    command = [require(compiler), "-O1", "-Wall", "-Wextra", "-Werror", *map(str, sources), "-o", str(target)]
    done = subprocess.run([*command, *flags, *kvcached_flags(), "-pthread"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run_program(program: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done
