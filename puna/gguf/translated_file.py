"""Writes a model's file that is in a form of Ollama's own as llama.cpp reads it: a new header, and the
weights as they are.

llama.cpp wants the tensors of a file one right after the other, and none that it does not know: what lies
behind one that is left out (of a projector) moves up.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from puna.gguf.errors import GgufError
from puna.gguf.metadata import Metadata
from puna.gguf.sharing import share
from puna.gguf.tensor_info import TensorInfo
from puna.gguf.writer import BLOCK_BYTES, GgufValue, NewTensor, aligned, write_header

_OF_TOKENS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type"))
_EMBEDDING = "token_embd.weight"
_ELSEWHERE = "puna.tensors.file"
"""Key of headers that puna makes for tensors in several files."""
_ABOUT_PLACES = ("general.alignment", "split.")
"""Beginnings of keys about where data lie."""

Values = dict[str, GgufValue]


class Written(NamedTuple):
    """What has become of a file."""

    num_bytes: int
    shared_bytes: int
    """Of these, on disk only once."""


class _Run(NamedTuple):
    """Tensors that lie one behind the other in both files."""

    begin: int
    """In the old one."""
    place: int
    """In the new one."""
    num_bytes: int


def write_translated(metadata: Metadata, source: int, target: int) -> Written:
    """metadata: of the file `source`, read as_stored; target: an empty file. Both are descriptors, and stay
    open. Raises GgufError, OSError.
    """
    if _ELSEWHERE in metadata:  # in one file, tensors do not overlap: no more is written than there is
        raise GgufError(f"{metadata.name}: its tensors are in other files")
    tensors = sorted(metadata.tensors.values(), key=lambda tensor: tensor.offset)
    if unknown := next((tensor for tensor in tensors if not tensor.num_bytes), None):
        raise GgufError(f"{metadata.name}: tensor {unknown.name} is of an unknown type, {unknown.type}")
    values = plain_values(metadata)
    num_tokens = _num_tokens(metadata)
    for key in values.keys() & {*_OF_TOKENS}:
        values[key] = values[key]._replace(value=values[key].value[:num_tokens])
    new = [_new_tensor(tensor, num_tokens) for tensor in tensors]
    with os.fdopen(target, "wb", closefd=False) as file:
        layout = write_header(file, values, new, phase=_phase(tensors, new))
    shared_bytes = 0
    for run in _runs(tensors, new, layout.offsets):
        try:
            shared_bytes += share(source, run.begin, target, run.place, run.num_bytes)
        except EOFError:
            raise GgufError(f"{metadata.name}: the file has been cut short") from None
    return Written(layout.num_bytes, shared_bytes)


def plain_values(metadata: Metadata) -> Values:
    """All metadata, as they are to be written into a file of another layout."""
    found = {}
    for key in metadata:
        info = metadata.info(key)
        if not key.startswith(_ABOUT_PLACES) and info.item_type != "array":
            found[key] = GgufValue(info.type, metadata[key], info.item_type)
    return found


def _num_tokens(metadata: Metadata) -> int | None:
    """As many as have embeddings: some files name further ones, of images. None: they do not say."""
    embedding = metadata.tensors.get(_EMBEDDING)
    if embedding is None or len(embedding.shape) != 2 or _OF_TOKENS[0] not in metadata:
        return None
    if any(key in metadata and metadata.info(key).type != "array" for key in _OF_TOKENS):
        return None
    return min(metadata.info(_OF_TOKENS[0]).num_items, embedding.shape[1]) or None


def _new_tensor(tensor: TensorInfo, num_tokens: int | None) -> NewTensor:
    shape = tensor.shape
    if tensor.name == _EMBEDDING and num_tokens is not None:
        shape = (shape[0], num_tokens)
    return NewTensor(tensor.name, tensor.type, shape)


def _phase(tensors: Sequence[TensorInfo], new: Sequence[NewTensor]) -> int:
    """Where in a block the data are to begin, so that as much as can be lies in its block as it did."""
    alike: Counter[int] = Counter()
    place = 0
    for old, tensor in zip(tensors, new, strict=True):
        alike[(old.offset - place) % BLOCK_BYTES] += tensor.num_bytes
        place = aligned(place + tensor.num_bytes)
    return max(alike, key=lambda phase: alike[phase], default=0)


def _runs(tensors: Sequence[TensorInfo], new: Sequence[NewTensor], offsets: Sequence[int]) -> Iterator[_Run]:
    """In the order of the file. What lies between tensors of a run is padding."""
    run = None
    for old, tensor, place in zip(tensors, new, offsets, strict=True):
        if run is not None and old.offset - run.begin == place - run.place:
            run = run._replace(num_bytes=place + tensor.num_bytes - run.place)
            continue
        if run is not None:
            yield run
        run = _Run(old.offset, place, tensor.num_bytes)
    if run is not None:
        yield run
