"""Which files of a directory are a model as Hugging Face publishes them: weights and what describes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from puna.registry.local.local_file import sorted_entries
from puna.registry.store.manifest_files import is_file

SUFFIX = ".safetensors"
_CONFIG = "config.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model")
_BESIDE = (*_TOKENIZERS, "chat_template.jinja")
_MAX_FILES = 1000


def directory_files(directory: Path) -> tuple[Path, ...]:
    """In order of their names, as the conversion takes them; none if they are no whole model."""
    files = []
    for path in _candidates(directory):
        files.append(path)
        if len(files) > _MAX_FILES:
            return ()
    names = {path.name for path in files if path.parent == directory}
    has_all = _CONFIG in names and not names.isdisjoint(_TOKENIZERS)
    return tuple(files) if has_all and any(name.endswith(SUFFIX) for name in names) else ()


def _candidates(directory: Path) -> Iterator[Path]:
    for path in sorted_entries(directory):
        if path.suffix == ".json" or path.name in _BESIDE or _is_shard(path.name):
            if is_file(path):
                yield path
        elif is_file(path / _CONFIG):  # of a module of sentence-transformers
            yield path / _CONFIG


def _is_shard(name: str) -> bool:
    return name.startswith("model") and name.endswith(SUFFIX)
