"""A program that is not ours, in its cage: a shell tries what llama.cpp's server may and may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from puna.worker.cage import landlock

pytestmark = pytest.mark.e2e

ENTER = """
import os, sys
from pathlib import Path
from puna.worker.cage import enter
from puna.worker.cage.program_rules import places_of, program_rules
directory, model, script = sys.argv[1:]
level = enter(program_rules(places_of(Path("/bin/bash")), Path(directory), int(model)))
assert not level.is_low, level
os.execv("/bin/bash", ["bash", "-c", script])
"""


@pytest.mark.skipif(landlock.version() == 0, reason="the kernel has no Landlock")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("read -r line < $MODEL; echo $line", "GGUF"),
        ("read -r line < $MODEL_BY_NAME; echo $line", "GGUF"),
        ("read -r line < $SECRET; echo $line", ""),
        ("echo x > $MODEL_BY_NAME; read -r line < $MODEL; echo $line", "GGUF"),
        ("echo x > $DIRECTORY/new; read -r line < $DIRECTORY/new; echo $line", "x"),
        ("echo x > $OUTSIDE/new; read -r line < $OUTSIDE/new; echo $line", ""),
        ("echo x > /dev/tcp/127.0.0.1/$PORT && echo connected", ""),
        ("/bin/true & echo forked; wait", ""),
        ("kill -0 $PPID && echo reached", ""),
        ("exec /bin/echo became another", "became another"),
    ],
)
def test_what_it_can_do(tmp_path: Path, script: str, expected: str):
    directory, model, secret = tmp_path / "directory", tmp_path / "model", tmp_path / "secret"
    directory.mkdir()
    model.write_text("GGUF\n")
    secret.write_text("secret\n")
    with model.open() as file:
        names = {"MODEL": f"/proc/self/fd/{file.fileno()}", "MODEL_BY_NAME": model, "SECRET": secret}
        names |= {"DIRECTORY": directory, "OUTSIDE": tmp_path, "PORT": "9"}
        done = subprocess.run(
            [sys.executable, "-c", ENTER, str(directory), str(file.fileno()), script],
            env={**os.environ, **{name: str(value) for name, value in names.items()}},
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout.strip() == expected, done.stderr


ENTER_AT_HOME = """
import os, sys
from pathlib import Path
from puna.worker.cage import enter
from puna.worker.cage.program_rules import places_of, program_rules
program, directory, script = sys.argv[1:]
enter(program_rules(places_of(Path(program)), Path(directory)))
os.execv(program, ["bash", "-c", script])
"""


@pytest.mark.skipif(landlock.version() == 0, reason="the kernel has no Landlock")
@pytest.mark.parametrize("bin_name", [".", "bin"])
def test_beside_a_program_only_libraries_are_read(tmp_path: Path, bin_name: str):
    home, directory = tmp_path / "home", tmp_path / "directory"
    for path in (home / bin_name, home / "lib", directory):
        path.mkdir(parents=True, exist_ok=True)
    program = home / bin_name / "llama-server"
    shutil.copy("/bin/bash", program)
    beside, libraries = program.parent, home / ("lib" if bin_name == "bin" else ".")
    (libraries / "libggml.so.0").write_text("library\n")
    (beside / "key").write_text("key\n")
    (home / "lib" / "key").write_text("key\n")
    script = (
        f"for path in {libraries}/libggml.so.0 {beside}/key {home}/lib/key; do read -r line < $path;"
        f" echo $line; line=; done; echo {libraries}/*.so*"
    )
    command = [sys.executable, "-c", ENTER_AT_HOME, str(program), str(directory), script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["library", str(libraries / "libggml.so.0")], done.stderr


ENTER_WITH_MEMORY = """
import os, sys
from pathlib import Path
from puna.worker.cage import enter
from puna.worker.cage.program_rules import places_of, program_rules
file = os.memfd_create("projector")
os.write(file, b"GGUF")
level = enter(program_rules(places_of(Path("/bin/bash")), Path(sys.argv[1]), file))
print(level.landlock > 0, Path(f"/proc/self/fd/{file}").read_text())
"""


@pytest.mark.skipif(landlock.version() == 0, reason="the kernel has no Landlock")
def test_files_in_memory_are_read_by_name(tmp_path: Path):
    command = [sys.executable, "-c", ENTER_WITH_MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True GGUF", done.stderr
