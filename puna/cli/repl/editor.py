"""Writing a message in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from puna.cli.errors import CliError

_VARIABLES = ("OLLAMA_EDITOR", "VISUAL", "EDITOR")


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """The program and its arguments. Raises CliError for what cannot be split into words."""
    text = next((text for name in _VARIABLES if (text := environ.get(name, "").strip())), "vi")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CliError(f"editor {text}: {error}") from None


def edit(text: str) -> str:
    """The text as the editor leaves it, without newlines at its end. Raises CliError."""
    command = editor_command(os.environ)
    with tempfile.NamedTemporaryFile("w", prefix="puna-prompt-", suffix=".txt") as file:
        file.write(text)
        file.flush()
        try:
            subprocess.run([*command, file.name], check=True)
            return Path(file.name).read_text(errors="replace").rstrip("\n")  # it may be another file by now
        except FileNotFoundError:
            raise CliError(
                f'editor "{command[0]}" not found, set OLLAMA_EDITOR to the path of your preferred editor'
            ) from None
        except OSError as error:
            raise CliError(f"editor {command[0]}: {error.strerror}") from None
        except subprocess.CalledProcessError as error:
            raise CliError(f"editor exited with error: status {error.returncode}") from None
