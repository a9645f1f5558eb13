"""Which files a path in a Modelfile means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from puna.cli.errors import CliError

_WEIGHTS = (
    ("model*.safetensors", "*/model*.safetensors"),
    ("adapters.safetensors",),
    ("adapter_model.safetensors",),
    ("consolidated*.safetensors",),
    ("pytorch_model*.bin",),
    ("consolidated*.pth",),
    ("*.gguf",),
    ("*.bin",),
)
"""In a directory: what is found by the first of these that finds anything."""
_BESIDE = ("*.json", "*/*.json", "chat_template.jinja", "tokenizer.model", "sentencepiece.bpe.model")
"""What goes along with safetensors."""
_PART = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5}\.gguf)")
_BLOB = re.compile(r"sha256-([0-9a-f]{64})")
_LFS_POINTER = b"version https://git-lfs"
_PYTORCH = (".pth", "pytorch_model")


def find_path(text: str, directory: Path) -> Path | None:
    """The file or directory that a Modelfile in `directory` means; None if there is none, but text may be the
    name of a model. A blob of a store is one wherever it is: the server may have it. Raises CliError for what
    can only be a path.
    """
    try:
        path = directory / Path(text).expanduser()
        if blob_of(path) or path.exists():
            return path
    except (RuntimeError, OSError, ValueError) as error:
        raise CliError(f"{text}: {error}") from error
    if text == "." or text.startswith(("./", "../", "/", "~")):
        raise CliError(f"{text}: no such file or directory")
    return None


def blob_of(path: Path) -> str:
    """The digest of a file that is named as a store's blobs are; empty: it is not."""
    match = _BLOB.fullmatch(path.name)
    return f"sha256:{match[1]}" if match else ""


def model_files(path: Path) -> dict[str, Path]:
    """Files by the names that the server is told, relative to the directory. Raises CliError, OSError."""
    if path.is_dir():
        files = {str(each.relative_to(path)): each for each in _in_directory(path)}
    elif part := _PART.fullmatch(path.name):
        files = {each.name: each for each in sorted(path.parent.glob(f"{_escaped(part[1])}-*-of-{part[2]}"))}
    else:
        files = {path.name: path}
    for name, each in files.items():
        if each.suffix == ".safetensors" and _is_pointer(each):
            raise CliError(f"{name} is only a pointer of Git LFS: fetch the file itself (git lfs pull)")
    return files


def _in_directory(path: Path) -> Iterator[Path]:
    for patterns in _WEIGHTS:
        found = [each for pattern in patterns for each in sorted(path.glob(pattern)) if each.is_file()]
        if not found:
            continue
        if found[0].name.endswith(_PYTORCH[0]) or found[0].name.startswith(_PYTORCH[1]):
            raise CliError(f"{path} has PyTorch files, which may run any code: convert them to safetensors")
        yield from found
        if found[0].suffix == ".safetensors":
            for pattern in _BESIDE:
                yield from (each for each in sorted(path.glob(pattern)) if each.is_file())
        return
    raise CliError("no Modelfile or safetensors files found")


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
