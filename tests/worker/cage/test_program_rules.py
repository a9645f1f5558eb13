"""A program that is not ours, in its cage: a shell tries what llama.cpp's server may and may not."""

from __future__ import annotations

import json
import os
import pty
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
        ("echo x > $DIRECTORY/new; read -r line < $DIRECTORY/new; echo $line", ""),
        ("echo x > $OUTSIDE/new; read -r line < $OUTSIDE/new; echo $line", ""),
        ("echo x > /dev/tcp/127.0.0.1/$PORT && echo connected", ""),
        ("/bin/true & echo forked; wait", ""),
        ("kill -0 $PPID && echo reached", ""),
        ("exec /bin/echo became another", ""),
        ("exec /bin/bash -c 'echo became itself'", "became itself"),
        (": < /etc/passwd && echo opened", ""),
        (": < /usr/bin/env && echo opened", ""),
        ("echo /usr/share/* /usr/local/* /etc/*", "/usr/share/* /usr/local/* /etc/*"),
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


CONTROLS = """
import errno, fcntl, json, os, sys
from pathlib import Path
from puna.worker.cage import CageRules, enter
terminal, with_gpu = map(int, sys.argv[1:])
rules = CageRules(executable=(Path("/lib"),), devices=(Path("/dev/zero"),), controls_devices=bool(with_gpu))
enter(rules)
zero = os.open("/dev/zero", os.O_RDWR)

def outcome(descriptor, request):
    try:
        fcntl.ioctl(descriptor, request, bytes(64))
    except OSError as error:
        return errno.errorcode[error.errno]

asked = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSCTTY": 0x540E, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}
typed = {name: outcome(terminal, request) for name, request in asked.items()}
print(json.dumps([typed, outcome(terminal, 0x541B), outcome(zero, 0xC0406400), outcome(zero, 0x30000001)]))
"""


@pytest.mark.parametrize("with_gpu", [False, True])
def test_what_it_can_control(*, with_gpu: bool):
    terminals = pty.openpty()
    command = [sys.executable, "-c", CONTROLS, str(terminals[1]), str(int(with_gpu))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, pass_fds=terminals[1:])
    for terminal in terminals:
        os.close(terminal)
    assert done.returncode == 0, done.stderr
    typed, waiting, drm, unified_memory = json.loads(done.stdout)
    assert set(typed.values()) == {"EPERM"}
    assert waiting is None  # how much could be read
    assert drm == unified_memory == ("ENOTTY" if with_gpu else "EPERM")  # which that device does not know


FINDS_LIBRARIES = """
import os, sys
from pathlib import Path
from puna.worker.cage import enter
from puna.worker.cage.program_rules import places_of, program_rules
enter(program_rules(places_of(Path(sys.argv[1])), Path(sys.argv[2])))
os.execv(sys.argv[1], ["program"])
"""


@pytest.mark.skipif(landlock.version() == 0 or not shutil.which("cc"), reason="needs Landlock and a compiler")
def test_a_program_at_odd_places_finds_its_libraries(tmp_path: Path):
    """A link on PATH, a program in a cellar, its library in another one: all in a home directory. Beside it
    are more libraries of others than can be looked at.
    """
    cellar, library, directory = tmp_path / "cellar" / "bin", tmp_path / "other", tmp_path / "run"
    for path in (cellar, library, directory):
        path.mkdir(parents=True)
    (tmp_path / "library.c").write_text("int answer(void) { return 42; }")
    (tmp_path / "program.c").write_text(
        '#include <stdio.h>\nint answer(void); int main(void) { printf("%d", answer()); }'
    )
    shared = ["-shared", "-o", library / "libanswer.so", tmp_path / "library.c"]
    linked = [tmp_path / "program.c", f"-L{library}", "-lanswer", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", "-fPIC", *shared], check=True)
    subprocess.run(["cc", "-o", cellar / "llama-server", *linked], check=True)
    beside = tmp_path / "cellar" / "lib"
    beside.mkdir()
    other = Path(shutil.copy(library / "libanswer.so", beside / "libother.so"))
    for number in range(3000):
        (beside / f"lib{number}.so").hardlink_to(other)
    (tmp_path / "llama-server").symlink_to(cellar / "llama-server")
    command = [sys.executable, "-c", FINDS_LIBRARIES, str(tmp_path / "llama-server"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "42", done.stderr
