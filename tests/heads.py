"""Tiny models whose prediction heads are often right, and a model's drafts without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from puna._native import Sampler
from puna.backends.base import Batch, KvReservation
from puna.backends.cpu.backend import CpuModel
from puna.engine import SamplingParams
from puna.engine.sequences.samplers import new_sampler
from puna.kv import BLOCK_TOKENS
from tests.tiny import SPECIAL_TOKENS, Tiny, gemmas, write_tiny

_SIZE_OF_EMBEDDINGS = 0.6  # of what they are elsewhere: layers then have their say, too
_SHARE_OF_HIDDEN = 0.6

_WINDOWS = [True, False, True]
ASSISTANT = Tiny(
    "gemma4-assistant",
    layers=len(_WINDOWS),
    width=64,
    head_dim=32,
    freq_factors=True,
    ffn_scale=0.1,
    attention_scale=0.3,
    metadata=gemmas.HEADS
    | {
        "attention.shared_kv_layers": len(_WINDOWS),
        "attention.sliding_window_pattern": _WINDOWS,
    },
    shared_metadata={"gemma4-assistant.nextn_predict_layers": len(_WINDOWS)},
    layer_tensors=gemmas.assistant,
)
"""Gemma 4's drafter."""


def write_predicting(path: Path, tiny: Tiny, weight_type: str = "F32", *, is_right: bool = True) -> Path:
    """A model that often goes on with the token whose number is the next one.

    is_right: its head does so, too; otherwise the head is random.
    """
    embeddings: list[NDArray[np.float32]] = []

    def change(name: str, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        if name == "token_embd.weight":
            embeddings.append(weight * _SIZE_OF_EMBEDDINGS)
        if name == "token_embd.weight" or name.endswith("embed_tokens.weight"):
            return embeddings[0]
        if name == "output.weight" or name.endswith("shared_head_head.weight"):
            output = np.roll(embeddings[0], 1, axis=0)
            output[-len(SPECIAL_TOKENS) :] = 0  # replies do not end
            return output
        if is_right and name.endswith("nextn.eh_proj.weight"):
            of_token = np.eye(len(weight), dtype=np.float32)
            return np.concatenate([of_token, _SHARE_OF_HIDDEN * weight[:, len(weight) :]], axis=1)
        return weight

    return write_tiny(path, replace(tiny, tied=False), weight_type, change=change)


def write_drafter(path: Path, model: Path, weight_type: str = "F32") -> Path:
    """Gemma 4's, for a model of write_predicting(), whose token it often says."""
    reader = gguf.GGUFReader(model)
    table = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    embeddings = gguf.quants.dequantize(table.data, table.tensor_type)
    windowed, full = reader.fields["gemma4.attention.head_count_kv"].contents()[-2:]
    width = embeddings.shape[1]
    narrow = np.random.default_rng(2).standard_normal((width, ASSISTANT.width)) / np.sqrt(ASSISTANT.width)

    def change(name: str, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        if name == "token_embd.weight":
            return np.roll(embeddings @ narrow, 1, axis=0).astype(np.float32)
        if name == "nextn.pre_projection.weight":
            of_token = narrow.T / np.sqrt(width)
            return np.hstack([of_token, _SHARE_OF_HIDDEN * weight[:, width:]]).astype(np.float32)
        return weight

    tensors = {
        "nextn.pre_projection.weight": (ASSISTANT.width, 2 * width),
        "nextn.post_projection.weight": (width, ASSISTANT.width),
    }
    drafter = replace(
        ASSISTANT,
        metadata=ASSISTANT.metadata
        | {"attention.head_count_kv": [windowed if has_window else full for has_window in _WINDOWS]},
        shared_metadata=ASSISTANT.shared_metadata | {"gemma4-assistant.embedding_length_out": width},
        model_tensors=lambda *_: tensors,
    )
    return write_tiny(path, drafter, weight_type, change=change)


class Drafting:
    """One sequence that is drafted for by the model's own head, always so many tokens, and verified."""

    def __init__(self, model: CpuModel, num_tokens: int) -> None:
        """num_tokens: that it may have."""
        kv_bytes = num_tokens * model.info.block_bytes + model.info.state_bytes
        self._model = model
        reservation = KvReservation(kv_bytes, kv_bytes, num_tokens + BLOCK_TOKENS, static_states=1)
        self._memories = model.reserve(reservation)
        num_blocks = num_tokens // BLOCK_TOKENS + 1
        self._table = np.arange(num_blocks, dtype=np.int32)[::-1].reshape(1, -1).copy()
        self._head = model.new_head_state()
        self._sampler: Sampler = new_sampler(SamplingParams(temperature=0))
        self._num_computed = 0
        self.tokens: list[int] = []
        self.num_drafted = self.num_right = 0

    def compute(self, tokens: Sequence[int], chunk: int) -> None:
        """Of a prompt, but for the last."""
        for begin in range(0, len(tokens) - 1, chunk):
            piece = list(tokens[begin : min(begin + chunk, len(tokens) - 1)])
            self._model.step(self._batch(piece, []), self._memories, [])
            self._num_computed += len(piece)
        self.tokens = list(tokens)

    def draft(self, count: int) -> list[int]:
        """What follows the latest token."""
        batch = self._batch(self.tokens[-1:], [])
        (drafts,) = self._model.predict(batch, self._memories, [count])
        return drafts

    def step(self, drafts: list[int]) -> list[int]:
        """The next tokens."""
        batch = self._batch([self.tokens[-1], *drafts], drafts, draws=True)
        samples = self._model.step(batch, self._memories, [self._sampler]).samples
        drawn: list[int] = samples.tokens.tolist()
        self.num_drafted += len(drafts)
        self.num_right += len(drawn) - 1
        self._num_computed += len(drawn)
        self.tokens += drawn
        return drawn

    def close(self) -> None:
        for memory in self._memories:
            memory.close()

    def _batch(self, tokens: list[int], drafts: list[int], *, draws: bool = False) -> Batch:
        begin, count = self._num_computed, len(tokens)
        states = np.array([[0 if begin else -1, 0]], np.int32)
        groups = self._model.info.groups
        rows = range(count - 1 - len(drafts), count) if draws else range(0)
        return Batch(
            tokens=np.array(tokens, np.int32),
            positions=np.arange(begin, begin + count, dtype=np.int32),
            sequence_starts=np.array([0, count], np.int32),
            block_tables=tuple(states if group.is_state else self._table for group in groups),
            rows=np.array(rows, np.int32),
            drafts=np.array(drafts, np.int32) if drafts else None,
            draft_starts=np.array([0, len(drafts)], np.int32) if drafts else None,
            heads=(self._head,),
        )
