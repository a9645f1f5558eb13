"""What the engine needs of a device: load a model, run one step of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from puna.gguf import GgufError, open_descriptor

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from puna._native import Arena, StepControl, ThreadPool


class ModelLoadError(ValueError):
    """A model file that cannot be run; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of one model, as flat arrays; all int32.

    tokens, positions: [T], the sequences' new tokens one after the other, positions contiguous in each.
    sequence_starts: [S + 1], sequence s owns tokens[sequence_starts[s]:sequence_starts[s + 1]].
    block_tables: [S, B], row s lists the KV blocks of sequence s; position p lies in entry p // 16.
    rows: [R], indexes into tokens whose logits are wanted.
    num_threads: how many of the device's threads compute at most; None: all. It does not change a result.
    control: may stop the step, which then raises NativeError and is as if it had never been.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    sequence_starts: NDArray[np.int32]
    block_tables: NDArray[np.int32]
    rows: NDArray[np.int32]
    num_threads: int | None = None
    control: StepControl | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine and the daemon know of a loaded model.

    kv_type: what keys and values are stored as.
    can_shift: whether tokens in the KV memory can move to other positions.
    scratch_bytes: what its longest steps need beside weights, KV and activations, at most.
    kernels: what computes it; the results of others may differ in the last bits.
    """

    architecture: str
    vocab_size: int
    context_length: int
    num_layers: int
    block_bytes: int
    kv_type: str
    weight_bytes: int
    can_shift: bool
    scratch_bytes: int = 0
    kernels: str = ""

    @property
    def fixed_bytes(self) -> int:
        """Memory that it takes while it is awake, whatever KV it has."""
        return self.weight_bytes + self.scratch_bytes


class DeviceModel(Protocol):
    """A model ready to run on a device."""

    @property
    def info(self) -> ModelInfo: ...

    def run(self, batch: Batch, arena: Arena) -> NDArray[np.float32]:
        """Logits [R, vocab_size] of one step, valid until the next run; K and V go into the arena's blocks.

        Raises NativeError for a batch that does not fit the model or the arena.
        """

    def move_kv(
        self,
        arena: Arena,
        source: NDArray[np.int32],
        destination: NDArray[np.int32],
        source_begin: int,
        destination_begin: int,
        num_tokens: int,
    ) -> None:
        """Copies K and V of num_tokens tokens from positions of one block table [B] to those of another.

        Token i goes from source_begin + i to destination_begin + i, in ascending order; the tables may share
        blocks where tokens go down. Keys are rotated by as many positions as they move; bits stay as they are
        where that is 0. Raises NativeError, with nothing written, for a range or a block that does not exist,
        and for a rotation unless can_shift.
        """

    def sleep(self) -> None:
        """It will not be run for a while: keeps only what makes the next run quick."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's file, opened for reading by somebody who closes it once load() has returned.

    name: for error texts.
    descriptors: of a split file's parts, in order; of any other file exactly one.
    """

    name: str
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> ModelSource:
        """Opens the file, for the caller to close. Raises ModelLoadError."""
        try:
            return cls(os.fsencode(path).decode(errors="backslashreplace"), (open_descriptor(path),))
        except GgufError as error:
            raise ModelLoadError(str(error)) from error

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[ModelSource]:
        """Raises ModelLoadError if the file cannot be opened."""
        source = cls.of(path)
        try:
            yield source
        finally:
            source.close()

    def close(self) -> None:
        """Once."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Backend(Protocol):
    """A device."""

    @property
    def pool(self) -> ThreadPool: ...

    def load(self, source: ModelSource) -> DeviceModel:
        """Raises ModelLoadError for a file that cannot be run."""

    def close(self) -> None: ...
