"""A GGUF file of another program, and what it is called here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from puna.registry.name import DEFAULT_TAG, ModelName
from puna.registry.store.manifest_files import is_file

_PART = re.compile(r"-(\d{5})-of-(\d{5})$", re.ASCII)
_QUANTIZATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|FP16|F32))$", re.IGNORECASE | re.ASCII
)
_PREFERRED = "q4_k_m"
_MAX_FILES = 1000


GGUF = ".gguf"
DIRECTORY_TAG = "safetensors"
PARTS_TAG = "parts"
"""Of what the user has linked to, which has no other tag."""


class LocalFile(NamedTuple):
    """Of a model. `paths`: the parts of a split file, in order; all files of a directory of safetensors; of
    any other file exactly one.
    """

    name: ModelName
    source: str
    paths: tuple[Path, ...]
    directory: Path | None = None
    """Of safetensors."""


def named_files(
    host: str, namespace: str, repository: str, source: str, paths: Iterable[Path]
) -> list[LocalFile]:
    """The models among the files of one repository.

    A file's tag is its quantization, as Hugging Face has it for Ollama, or all of its name where several have
    the same one, or none. What cannot be a model's name is made one with dashes, or left out.
    """
    groups = _groups(paths)
    tags = {stem: match[1] for stem in groups if (match := _QUANTIZATION.search(stem))}
    seen = [tag.lower() for tag in tags.values()]
    files = []
    for stem, group in sorted(groups.items()):
        tag = tags.get(stem, "")
        if seen.count(tag.lower()) != 1:
            tag = stem
        parts = (host, fitting(namespace, "-"), fitting(repository, ".-"), fitting(tag, ".-"))
        if name := ModelName.from_parts(parts):
            files.append(LocalFile(name, source, group))
    return files


def choose(files: list[LocalFile], name: ModelName) -> LocalFile | None:
    """The one of a repository's files that a name asks for: by its tag, or by its file's name; without a tag,
    the only one there is, or the one that is quantized as most are. GGUF files come before a directory.
    """
    wanted = name.tag.lower()
    for file in files:
        if wanted in (file.name.tag.lower(), file.paths[0].name.lower()):
            return file
    if wanted != DEFAULT_TAG:
        return None
    files = [file for file in files if file.directory is None] or files
    preferred = [file for file in files if file.name.tag.lower() == _PREFERRED]
    return next(iter(files if len(files) == 1 else preferred), None)


def gguf_files(directory: Path, depth: int) -> Iterator[Path]:
    """Those in a directory and, to some depth, below; projectors are no models by themselves."""
    found = 0
    directories = [(directory, depth)]
    while directories:
        directory, depth = directories.pop()
        for path in sorted_entries(directory):
            if path.suffix.lower() == GGUF:
                if "mmproj" not in path.name.lower() and is_file(path):
                    yield path
                    found += 1
            elif depth and not path.is_symlink() and is_directory(path):
                directories.append((path, depth - 1))
            if found == _MAX_FILES:
                return


def is_directory(path: Path) -> bool:
    """False also where nobody may look."""
    try:
        return path.is_dir()
    except OSError:
        return False


def sorted_entries(directory: Path) -> list[Path]:
    """None where there is no directory, or none that may be read."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def parts_of(path: Path) -> tuple[Path, ...]:
    """All parts of the split file that `path` is the first part of; none if it is not, or one is missing."""
    match = _PART.search(path.stem)
    if match is None or path.suffix != GGUF or int(match[1]) != 1 or not 1 < int(match[2]) <= _MAX_FILES:
        return ()
    stem = path.stem[: match.start()]
    numbers = range(1, int(match[2]) + 1)
    parts = tuple(path.with_name(f"{stem}-{number:05}-of-{match[2]}{GGUF}") for number in numbers)
    return parts if all(map(is_file, parts)) else ()


def _groups(paths: Iterable[Path]) -> dict[str, tuple[Path, ...]]:
    """Files by their names' stems; the parts of a split file together, if all are there."""
    groups: dict[str, dict[int, Path]] = {}
    counts: dict[str, int] = {}
    for path in paths:
        part = _PART.search(path.stem)
        stem = path.stem[: part.start()] if part else path.stem
        groups.setdefault(stem, {}).setdefault(int(part[1]) if part else 1, path)
        counts[stem] = int(part[2]) if part else 1
    return {
        stem: tuple(path for _, path in sorted(group.items()))
        for stem, group in groups.items()
        if sorted(group) == list(range(1, counts[stem] + 1))
    }


def fitting(text: str, more: str) -> str:
    """As a part of a model's name, which may have `more` than letters, digits and `_`."""
    return re.sub(rf"[^A-Za-z0-9_{re.escape(more)}]+", "-", text).lstrip(".-")
