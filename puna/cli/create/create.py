"""`puna create`: a Modelfile becomes a request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from puna.cli.client import Client
from puna.cli.create.files import find_path, model_files
from puna.cli.create.upload import GATHERING, upload
from puna.cli.errors import CliError
from puna.cli.output.progress import progress_display, show_statuses
from puna.registry.modelfile.errors import ModelfileError
from puna.registry.modelfile.modelfile import MAX_BYTES, Modelfile, parse_modelfile

_DEFAULT = "Modelfile"
_TEXTS = ("template", "system", "renderer", "parser", "requires", "parameters")

Upload = Callable[[dict[str, Path]], dict[str, str]]


def create(
    client: Client, model: str, file: str = "", *, quantize: str = "", draft_quantize: str = ""
) -> None:
    """Creates `model` as the Modelfile says; without one, of what is in the current directory."""
    try:
        modelfile, directory = read_modelfile(file)
        for name in modelfile.ignored:
            print(f"warning: parameter {name} is deprecated", file=sys.stderr)
        with progress_display() as display:
            display.status(GATHERING)
            body = request_of(modelfile, directory, lambda files: upload(client, files, display))
            body |= {"model": model, "quantize": quantize, "draft_quantize": draft_quantize}
            show_statuses(client.stream("/api/create", body), display)
    except ModelfileError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror or error}") from error


def read_modelfile(file: str) -> tuple[Modelfile, Path]:
    """And the directory that its paths are relative to. Raises CliError, ModelfileError, OSError."""
    path = Path(file or _DEFAULT).expanduser().absolute()
    try:
        with path.open("rb") as opened:
            return parse_modelfile(opened.read(MAX_BYTES + 1)), path.parent
    except FileNotFoundError:
        if file:
            raise CliError("specified Modelfile wasn't found") from None
        return Modelfile(sources=["."]), path.parent


def request_of(modelfile: Modelfile, directory: Path, upload: Upload) -> dict[str, Any]:
    """The body of `/api/create`. Raises CliError, OSError, and what `upload` raises."""
    body: dict[str, Any] = {name: getattr(modelfile, name) for name in _TEXTS}
    body["license"] = modelfile.licenses
    body["messages"] = msgspec.to_builtins(modelfile.messages)
    paths = {source: find_path(source, directory) for source in modelfile.sources}
    models = [source for source, found in paths.items() if found is None]
    if models and len(paths) > 1:
        raise CliError(f"FROM names more than the model {models[0]}")
    files = _files_of([path for path in paths.values() if path is not None])
    adapters = _files_of([_existing(text, directory) for text in modelfile.adapters[-1:]])
    drafts = _files_of([_existing(text, directory) for text in modelfile.drafts])
    given = {"files": files, "adapters": adapters, "draft_files": drafts}
    body |= {field: upload(found) for field, found in given.items() if found}
    return body | ({"from": models[0]} if models else {})


def _existing(text: str, directory: Path) -> Path:
    path = find_path(text, directory)
    if path is None:
        raise CliError(f"{text}: no such file or directory")
    return path


def _files_of(paths: list[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in paths:
        for name, each in model_files(path).items():
            if files.setdefault(name, each) != each:
                raise CliError(f"two files have the name {name}: {files[name]} and {each}")
    return files
