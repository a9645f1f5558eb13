"""No code of the current directory is run, nor do children get what the shell knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import puna
from puna.cli.connection import server_environment
from puna.interpreter import python_command, with_absolute_paths
from puna.worker.launch import child_environment

pytestmark = pytest.mark.unit

ROOT = Path(puna.__file__).parents[1]
SHELL = {
    **{"HOME": "/home/me", "LC_ALL": "C", "OLLAMA_HOST": "x", "PUNA_KV_DISK": "0", "https_proxy": "p"},
    **{"AWS_SECRET_ACCESS_KEY": "s", "SSH_AUTH_SOCK": "s", "GITHUB_TOKEN": "s", "BASH_ENV": "x"},
}


def test_a_search_path_keeps_only_what_it_names_in_full():
    given = {"PYTHONPATH": ":/a:b::./c:/d", "LD_LIBRARY_PATH": ":;lib", "LD_PRELOAD": "/l/a.so ./b.so c.so"}
    kept = with_absolute_paths({**given, "HOME": "~"})
    assert kept == {"PYTHONPATH": "/a:/d", "LD_PRELOAD": "/l/a.so:c.so", "HOME": "~"}


def test_children_get_what_they_read_and_no_secrets():
    assert child_environment(SHELL).keys() == {"HOME", "LC_ALL", "OPENBLAS_NUM_THREADS"}
    assert server_environment(SHELL).keys() == {
        "HOME",
        "LC_ALL",
        "OLLAMA_HOST",
        "PUNA_KV_DISK",
        "https_proxy",
    }


@pytest.fixture
def downloads(tmp_path):
    """A directory where somebody planted a module."""
    for name in ("queue", "typing", "collections", "pathlib", "__future__", "importlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    (tmp_path / "lib").mkdir()
    return tmp_path


@pytest.mark.parametrize("python_path", ["", ":", "lib:.:", None])
def test_the_command_line_does_not_import_from_the_current_directory(downloads, python_path):
    code = """if True:
        import sys
        sys.path.append(sys.argv[1])  # as if it were installed
        from puna.cli.entry import forget_current_directory
        forget_current_directory()
        import queue
        print([entry for entry in sys.path if entry.startswith(sys.argv[2])])"""
    (downloads / "lib" / "queue.py").symlink_to(downloads / "queue.py")
    environ = {} if python_path is None else {"PYTHONPATH": python_path}
    # -S: an installation for development runs code of its own before any program, wherever that finds it.
    command = [sys.executable, "-S", "-c", code, str(ROOT), str(downloads)]
    assert subprocess.check_output(command, cwd=downloads, env=environ, text=True) == "[]\n"


def test_what_python_path_names_in_full_stays_though_it_is_the_current_directory(tmp_path):
    code = "from puna.cli.entry import forget_current_directory as f; f(); import sys; print(sys.path)"
    environ = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    out = subprocess.check_output([sys.executable, "-P", "-c", code], cwd=tmp_path, env=environ, text=True)
    assert str(tmp_path) in out


def test_a_module_is_run_without_the_current_directory(downloads):
    (downloads / "trace.py").write_text("print('planted')")
    done = subprocess.run(python_command("trace", "--version"), cwd=downloads, capture_output=True, text=True)
    assert done.stdout.startswith("trace ")
