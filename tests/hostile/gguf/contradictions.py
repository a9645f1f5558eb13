"""Files of every architecture whose metadata and tensors contradict each other: well-formed, but absurd.

Each must be used, or refused with an error that names the metadata key or the tensor.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from puna._native import NativeError
from puna.backends.base import ModelLoadError
from puna.backends.cpu import CpuBackend
from tests.gguf.encode import ARRAY, STRING, array, string
from tests.hostile.gguf.content import FIXED_SIZES, Content, TensorRecord, Value, encode, parse
from tests.hostile.gguf.mutations import number_bytes
from tests.hostile.gguf.use import descriptor_of, use_model
from tests.tiny import TINY, write_tiny

MAX_CASE_S = 20.0
_NUMBERS = tuple(FIXED_SIZES)
_MATRIX_TYPES = (0, 1, 2, 8, 30)  # F32, F16, Q4_0, Q8_0, BF16
_NAMED = re.compile(r"\bmetadata '?[a-z0-9_-]+\.|\btensor \S")


def contradict(random: random.Random, content: Content) -> str:
    """Makes one or two changes; what they are."""
    changes = (_change_metadata, _change_metadata, _change_tensor)
    return ", ".join(random.choice(changes)(random, content) for _ in range(random.choice((1, 1, 2))))


def _change_metadata(random: random.Random, content: Content) -> str:
    """Of the architecture's own: none, another value, another type, values for too few or too many layers."""
    architecture = next(v for v in content.values if v.key == b"general.architecture").data[8:]
    own = [value for value in content.values if value.key.startswith(architecture + b".")]
    value = random.choice(own)
    match random.randrange(5):
        case 0:
            content.values.remove(value)
        case 1:
            value.type, value.data = STRING, string("many")
        case 2:
            items = b"".join(number_bytes(random, 4, 4) for _ in range(3))
            value.type, value.data = ARRAY, array(4, 3, items)
        case _:
            kind = value.type if value.type in _NUMBERS else random.choice(_NUMBERS)
            value.type, value.data = kind, _number(random, value, kind)
    return f"{value.key.decode()} {value.data[:16].hex()}"


def _number(random: random.Random, value: Value, kind: int) -> bytes:
    """Any, or one that is close to what was there."""
    size = FIXED_SIZES[kind]
    if kind not in (4, 5, 10, 11) or random.random() < 0.5:
        return number_bytes(random, kind, size)
    old = int.from_bytes(value.data[:size], "little")
    return (random.choice((old + 1, old - 1, 2 * old, old // 2, 3 * old)) % 256**size).to_bytes(
        size, "little"
    )


def _change_tensor(random: random.Random, content: Content) -> str:
    at = random.randrange(len(content.tensors))
    tensor = content.tensors[at]
    match random.randrange(5):
        case 0:
            del content.tensors[at]
        case 1:
            tensor.type = random.choice(_MATRIX_TYPES)
        case 2:
            other = random.choice(content.tensors)
            content.tensors[at] = TensorRecord(tensor.name, other.shape, other.type, other.offset)
        case 3:
            tensor.shape = random.choice((tensor.shape[::-1], [*tensor.shape, 1], [*tensor.shape, 2]))
        case _:
            axis = random.randrange(len(tensor.shape))
            tensor.shape[axis] = max(tensor.shape[axis] + random.choice((-32, -1, 1, 32)), 1)
    return f"{tensor.name.decode()} {tensor.shape} of type {tensor.type}"


def _case(seed: int, number: int, backend: CpuBackend, bases: dict[str, bytes], directory: Path) -> str:
    """What became of it; AssertionError if its error names nothing."""
    name = list(TINY)[number % len(TINY)]
    if name not in bases:
        bases[name] = write_tiny(directory / "tiny.gguf", TINY[name]).read_bytes()
    content = parse(bases[name])
    what = contradict(random.Random(f"{seed}:{number}"), content)
    with descriptor_of(bytes(encode(content).file)) as descriptor:
        try:
            use_model(descriptor, backend)
        except ModelLoadError as error:
            assert _NAMED.search(str(error)), f"{name}: {what}: {error}"  # noqa: PT017
            return "refused"
        except NativeError:
            return "no step"
    return "step"


def _child(seed: int, begin: int, end: int) -> None:
    backend = CpuBackend(2)
    bases: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(begin, end):
            start_s = time.monotonic()
            outcome = _case(seed, number, backend, bases, Path(directory))
            assert time.monotonic() - start_s < MAX_CASE_S, "took too long"
            os.write(1, f"{outcome}\n".encode())
    backend.close()


if __name__ == "__main__":
    _child(*map(int, sys.argv[1:]))
