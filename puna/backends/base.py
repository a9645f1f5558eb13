"""The interface of a device to the engine: load a model, keep its KV, run one step of it.

A device owns its memory: how a block looks, and where it lies, is known to the device alone. The engine hands
out the numbers of blocks, and says which of them have memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from puna.gguf import GgufError, open_descriptor
from puna.gguf.pooling import Pooling

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from puna._native import PoolActivity, Sampler, SampleResult, StepControl, TokenMask


Engine = Literal["native", "llamacpp"]

BLOCK_TOKENS = 16
"""Tokens of KV that one block holds, in every model."""


class ModelLoadError(ValueError):
    """A model file that cannot be run; the text says what is wrong with it."""


class UnsupportedModelFile(ModelLoadError):
    """A model of a kind that the native engine does not run; another one may."""


class CannotSee(ModelLoadError):
    """Images were to be shown to a model for which nothing here can do that; the text says why."""


class StepSuspended(Exception):
    """The step of an encoder took as long as its control allows, and can go on: see Batch.goes_on."""


class DeviceOutOfMemory(RuntimeError):
    """The device has no memory left for what was asked of it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to compute in one step of one model, as flat arrays; all int32.

    tokens, positions: [T], the sequences' new tokens one after the other, positions contiguous in each.
    sequence_starts: [S + 1], sequence s owns tokens[sequence_starts[s]:sequence_starts[s + 1]].
    block_tables: for each group of layers [S, B], row s lists the KV blocks of sequence s; position p lies in
        entry p // 16. Entries that no token of the step sees are never followed. For a group of recurrent
        layers [S, 2]: the block with the state behind the tokens before the step (-1: the first token of the
        sequence is in the step), and the block that gets the state behind the step's tokens and those of its
        drafts that are accepted; both may be the same, and only the second is written.
    rows: [R], indexes into tokens, ascending, whose next token is wanted.
    hidden: [H], indexes into tokens whose hidden state is wanted; None: none. Of an encoder's text, the last.
    drafts, draft_starts: what sequences are thought to go on with. Of those that have rows, the i-th has the
        drafts [draft_starts[i], draft_starts[i + 1]) as its last tokens, and rows for the token before them
        and for each of them. None: each has one row.
    num_threads: how many of the device's threads compute at most; None: all. It does not change a result.
    masks: for each of the rows, which tokens it may give, None: any; empty: all rows may give any.
    adapters: of each sequence, from DeviceModel.load_adapter(), or None; empty: no sequence has one.
    heads: of each sequence, from DeviceModel.new_head_state(): the prediction head keeps what it needs of the
        step's tokens, too. None: it does not; empty: for no sequence.
    control: may stop the step, which then raises NativeError and is as if it had never been; or have an
        encoder's suspended.
    goes_on: it is the batch of the model's last step, which was suspended, and goes on from there.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    sequence_starts: NDArray[np.int32]
    block_tables: tuple[NDArray[np.int32], ...]
    rows: NDArray[np.int32]
    hidden: NDArray[np.int32] | None = None
    drafts: NDArray[np.int32] | None = None
    draft_starts: NDArray[np.int32] | None = None
    num_threads: int | None = None
    masks: Sequence[TokenMask | None] = ()
    control: StepControl | None = None
    adapters: Sequence[DeviceAdapter | None] = ()
    heads: Sequence[DeviceHeadState | None] = ()
    goes_on: bool = False


class StepResult(NamedTuple):
    """What a step gives."""

    samples: SampleResult
    """What was drawn for Batch.rows."""
    hidden: NDArray[np.float32]
    """[H, ModelInfo.hidden_size] for Batch.hidden: what the model has made of the tokens up to there, before
    the output matrix. Valid until the next step."""


class KvGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep the KV of the same tokens, or a state behind the same number of them, and so share
    blocks.
    """

    num_layers: int
    block_bytes: int
    """Of these layers: the KV of BLOCK_TOKENS tokens, or the state behind however many."""
    window: int | None = None
    """How many of the latest tokens a token sees, itself included; None: all."""
    is_state: bool = False
    """Whether a block is the state of recurrent layers: a step makes a new one of it."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model as the engine and the daemon know it.

    groups: those that keep everything first, then those with windows, the widest first, recurrent ones last.
    kv_type: what keys and values are stored as.
    can_shift: whether tokens in the KV memory can move to other positions.
    hidden_size: values of a hidden state; 0: there are none to be had.
    pooling: how hidden states become a text's embedding; rank: there are scores in place of them.
    predicts: whether it has a head that predicts tokens behind the next (MTP).
    has_drafter: whether that came in a file of its own.
    weight_bytes: without tables of which only the rows of tokens that occur are read.
    is_encoder: it gives embeddings, or scores, and nothing else: of whole texts, each in one step.
    idle_weight_bytes: of the weights, what a token does not use: experts that it did not choose.
    scratch_bytes: what its longest steps need beside weights, KV and activations, at most.
    kernels: what computes it; the results of others may differ in the last bits.
    engine: which one runs it.
    most_context: to which context_length it could be loaded again; 0: to none that is longer.
    """

    architecture: str
    vocab_size: int
    context_length: int
    num_layers: int
    groups: tuple[KvGroup, ...]
    kv_type: str
    weight_bytes: int
    can_shift: bool
    hidden_size: int = 0
    pooling: Pooling = "last"
    predicts: bool = False
    has_drafter: bool = False
    is_encoder: bool = False
    idle_weight_bytes: int = 0
    scratch_bytes: int = 0
    kernels: str = ""
    engine: Engine = "native"
    most_context: int = 0

    @property
    def block_bytes(self) -> int:
        """KV memory of BLOCK_TOKENS tokens that all layers keep."""
        return sum(group.block_bytes for group in self.groups if not group.is_state)

    @property
    def state_bytes(self) -> int:
        """The state of a sequence, whatever its length; 0 without recurrent layers."""
        return sum(group.block_bytes for group in self.groups if group.is_state)

    @property
    def fixed_bytes(self) -> int:
        """Memory that it takes while it is awake, besides its KV."""
        return self.weight_bytes + self.scratch_bytes

    @property
    def least_fixed_bytes(self) -> int:
        """The same with no more experts than a token uses: others can come from the file when they are
        chosen.
        """
        return self.fixed_bytes - self.idle_weight_bytes


class BlockMemory(Protocol):
    """KV memory of one group of a model's layers.

    Blocks are numbered from 0; extent e is the blocks [e * extent_blocks, (e + 1) * extent_blocks), which get
    and lose their memory together. For the engine's thread, but for what is said to be for any.
    """

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def extent_blocks(self) -> int: ...
    @property
    def extent_bytes(self) -> int: ...

    def allocate(self, extents: Sequence[int]) -> None:
        """To be called before their blocks are used; contents are undefined. A device may bring the memory
        only as it is written. Raises DeviceOutOfMemory, and has allocated none of them.
        """

    def populate(self, extents: Sequence[int]) -> None:
        """Brings all memory of allocated extents now. Raises DeviceOutOfMemory; they are then to be freed."""

    def prefetch(self, extent: int) -> None:
        """A hint that an allocated extent is about to be written."""

    def free(self, extents: Sequence[int]) -> None:
        """Of allocated extents; their contents are gone."""

    def read(self, block: int, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:
        """A copy of bytes [begin, end), None: to the last, as write() takes them. For any thread."""

    def write(self, block: int, content: NDArray[np.uint8], begin: int = 0) -> None:
        """content: the bytes from `begin` on, from read(), perhaps in an earlier process. For any thread."""

    def move(
        self,
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
        and for a rotation unless ModelInfo.can_shift. Not for groups of recurrent layers.
        """

    def close(self) -> None:
        """Gives all memory back. Whoever still reads or writes in another thread gets an error, or what was
        there.
        """


@dataclass(frozen=True, slots=True)
class KvReservation:
    """How much KV memory a model may come to have."""

    limit_bytes: int
    """Of all models together; it may be raised later."""
    room_bytes: int
    """As much as this model could have now."""
    static_tokens: int | None = None
    """All that it will ever have memory for; None: that comes and goes."""
    static_states: int = 0
    """Then: blocks of a group of recurrent layers."""


class DeviceAdapter(Protocol):
    """A LoRA adapter of a model on a device. It goes when nothing refers to it any more."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes while its model is awake."""

    def check_whole(self) -> None:
        """Raises NativeError if its file was cut short, and steps with it cannot be trusted."""


class DeviceHeadState(Protocol):
    """What a model's prediction head goes on with behind a sequence's computed tokens, besides KV."""

    def forget(self) -> None:
        """The sequence goes on from where it was not computed."""


class DeviceModel(Protocol):
    """A model ready to run on a device."""

    @property
    def info(self) -> ModelInfo: ...

    def reserve(self, reservation: KvReservation) -> tuple[BlockMemory, ...]:
        """Memory for each of info.groups, none of it allocated. Raises ModelLoadError."""

    def load_adapter(self, source: ModelSource) -> DeviceAdapter:
        """For any thread. source: an adapter's file. Raises ModelLoadError for one that does not fit the
        model.
        """

    def step(self, batch: Batch, kv: Sequence[BlockMemory], samplers: Sequence[Sampler]) -> StepResult:
        """Computes a step and draws; K and V go into the blocks. kv: from reserve().

        samplers: one for each sequence that has rows. Raises NativeError for a batch that does not fit the
        model or its memory, or that is stopped; StepSuspended.
        """

    def text_bytes(self, num_tokens: int, num_texts: int) -> int:
        """Of an encoder: memory that a step of so many texts needs beside ModelInfo.fixed_bytes, if they have
        so many tokens together, and keeps until the model sleeps.
        """

    def new_head_state(self) -> DeviceHeadState:
        """For a sequence of a model with a prediction head."""

    def predict(self, batch: Batch, kv: Sequence[BlockMemory], counts: Sequence[int]) -> list[list[int]]:
        """So many drafts for each sequence behind its latest token, or fewer. Raises NativeError, as step().

        batch: that token of each, with its head state, which was in the steps before. KV of the head is
        written there and for the drafts: their blocks have memory and are nobody else's.
        """

    def sleep(self) -> None:
        """Keeps only what makes the next step quick: the model will not run for a while."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's file, opened for reading by somebody who closes it once load() has returned.

    name: for error texts. descriptors: the GGUF file, then files that its tensors lie in besides, in the
    order in which it counts them. drafter: of the file of what it brings along to draft, if anything; for the
    native engine alone. projector: of the file that its projector is in, which may be the same one; none: it
    need not see. empty: of a file to write it into, where it is in a form that llama.cpp's server, which
    alone needs it, does not read.
    """

    name: str
    descriptors: tuple[int, ...]
    drafter: tuple[int, ...] = ()
    projector: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()

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

    @property
    def header(self) -> tuple[int, ...]:
        """Of descriptors, that of the GGUF file, which has all but some weights."""
        return self.descriptors[:1]

    def close(self) -> None:
        """Once."""
        for descriptor in (*self.descriptors, *self.drafter, *self.projector, *self.empty):
            os.close(descriptor)


class Backend(Protocol):
    """A device."""

    def load(self, source: ModelSource) -> DeviceModel:
        """Raises ModelLoadError for a file that cannot be run."""

    def activity(self) -> PoolActivity:
        """Progress of the threads, by which a step that hangs is told from a long one. From any thread."""

    def close(self) -> None: ...
