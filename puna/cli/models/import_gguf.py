"""Handing model files to the server: the server itself never opens a path that a request names."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from puna.cli.client import Client, is_local
from puna.cli.create.files import model_files
from puna.cli.create.upload import upload
from puna.cli.errors import CliError, ServerError
from puna.cli.output.progress import progress_display, show_statuses
from puna.registry.local.directory_files import directory_files
from puna.registry.local.linked import NAMESPACE, link, target_of, unlink
from puna.registry.local.local_file import parts_of


def is_path(model: str) -> bool:
    """Whether the user means a file: a path, or the name of an existing file ending in `.gguf`."""
    if model.startswith(("./", "../", "/", "~")):
        return True
    return model.lower().endswith(".gguf") and Path(model).is_file()


def model_name_of(path: Path) -> str:
    """`local/<file name>`, without `.gguf` and with `-` for what a model name cannot have."""
    stem = re.sub(r"\.gguf$", "", path.name, flags=re.IGNORECASE)
    return f"{NAMESPACE}/" + (re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).lstrip(".-")[:80] or "model")


def name_in_place(client: Client, path: Path) -> str | None:
    """The name of a file, of the first of a file's parts, or of a directory, that the server finds by itself,
    on this machine, and uses without a copy.
    """
    if not is_local(client.host):
        return None
    with suppress(ServerError, OSError):
        wanted = path.resolve()
        for model in client.get("/api/local")["models"]:
            place = model.get("directory") or model["files"][0]
            if Path(place).resolve() == wanted:
                return str(model["name"])
    return None


def link_in_place(client: Client, path: Path, links: Path) -> str | None:
    """Links to a directory of safetensors, or to the first part of a split file, from where a server of the
    same user finds it: its name there. None, and the links are what they were, if it does not find it.
    """
    is_split = bool(parts_of(path.absolute()))
    if not is_local(client.host) or not (is_split or directory_files(path)):
        return None
    name = model_name_of(path.absolute()).removeprefix(f"{NAMESPACE}/")
    with suppress(OSError):
        earlier = target_of(links, name)
        link(links, name, path.absolute() if is_split else path.resolve())
        if found := name_in_place(client, path):
            return found
        if earlier is None:
            unlink(links, name)
        else:
            link(links, name, earlier)
    return None


def import_gguf(client: Client, path: Path) -> str:
    """Uploads a GGUF file, or a directory of safetensors, unless the server has it, makes a model of it, and
    returns the model's name.
    """
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                if file.read(4) != b"GGUF":
                    raise CliError(f"{path} is not a GGUF file")
        name = model_name_of(path.absolute())
        with progress_display() as display:
            files = upload(client, model_files(path), display)
            show_statuses(client.stream("/api/create", {"model": name, "files": files}), display)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error
    return name
