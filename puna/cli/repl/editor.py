"""Writing a message in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from puna.cli.errors import CliError


def editor_command(chosen: str, environ: Mapping[str, str]) -> list[str]:
    """The program and its arguments; chosen: by OLLAMA_EDITOR. Raises CliError for an open quote."""
    text = chosen or environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip() or "vi"
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CliError(f"editor {text}: {error}") from None


def edit(text: str, chosen: str = "") -> str:
    """The text as the editor leaves it, without newlines at its end; chosen: by OLLAMA_EDITOR.

    Raises CliError.
    """
    command = editor_command(chosen, os.environ)
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
