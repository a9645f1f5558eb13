"""Installs a wheel into an empty environment, where there is no compiler, and has it answer a prompt.

python -m tests.wheel dist/puna-*.whl: the one that fits this Python. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WANTED = (
    "puna/py.typed",
    "puna/_native.pyi",
    "puna/lib/libkvcached.so",
    "puna/lib/pkgconfig/kvcached.pc",
    "puna/include/kvcached.h",
    "puna/include/kvcached_bridge.h",
    "puna/kvcached/kvcached.proto",
    "puna/api/openapi/page.html",
)
_UNWANTED = ("native/", "tests/", "benchmarks/", "docs/", "CMakeLists.txt")
_COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make")
_MOST_BYTES = 12 << 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--prompt", default="Why is the sky blue? Answer in one sentence.")
    arguments = parser.parse_args()
    wheel = _fitting(arguments.wheels)
    _check_content(wheel)
    with tempfile.TemporaryDirectory(prefix="puna-wheel-") as folder:
        environment = _install(wheel, Path(folder))
        version = _run(environment, "python", "-c", "import puna; print(puna.__version__)").strip()
        if version != wheel.name.split("-")[1]:
            raise SystemExit(f"{wheel.name} calls itself {version}")
        with _daemon(environment):
            answer = _run(environment, "puna", "run", arguments.model, arguments.prompt)
    print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB): {answer.strip()}")
    return 0 if answer.strip() else 1


def _fitting(wheels: list[Path]) -> Path:
    """Wheels of the stable ABI are for their version and later ones."""
    minor = sys.version_info.minor
    for wheel in wheels:
        python, abi = wheel.stem.split("-")[2:4]
        if python == f"cp3{minor}" or (abi == "abi3" and int(python.removeprefix("cp3")) <= minor):
            return wheel.resolve()
    raise SystemExit(f"no wheel for Python 3.{minor} among {', '.join(map(str, wheels))}")


def _check_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [name for name in _WANTED if name not in names]
    needless = [name for name in names if name.startswith(_UNWANTED)]
    if missing or needless:
        raise SystemExit(f"{wheel.name} lacks {missing}, and has {needless} for nothing")
    if wheel.stat().st_size > _MOST_BYTES:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {_MOST_BYTES}")


def _install(wheel: Path, folder: Path) -> dict[str, str]:
    """Into a new virtual environment; returns what the processes in it have as theirs."""
    venv, home = folder / "venv", folder / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HTTP", "SSL_"))}
    environment = {
        **kept,
        "PATH": str(venv / "bin"),
        "HOME": str(home),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_MODELS": str(home / "models"),
    }
    found = [name for name in _COMPILERS if shutil.which(name, path=environment["PATH"])]
    if found:
        raise SystemExit(f"the environment is not without compilers: {found}")
    _run(environment, "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel))
    return environment


@contextmanager
def _daemon(environment: dict[str, str]) -> Iterator[None]:
    command = [str(Path(environment["PATH"]) / "puna"), "serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def _run(environment: dict[str, str], program: str, *arguments: str) -> str:
    command = [str(Path(environment["PATH"]) / program), *arguments]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{program} {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
