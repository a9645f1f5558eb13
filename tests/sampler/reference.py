"""The sampling chain again, in plain numpy: slow, simple, and as llama.cpp documents it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna._native import Sampler

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Params:
    """Everything off but temperature 1."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: dict[int, float] = field(default_factory=dict)
    num_logprobs: int = -1

    def sampler(self, history: Sequence[int] = (), **changes: Any) -> Sampler:
        sampler = Sampler(**{**vars(self), **changes})
        sampler.accept_many(np.array(history, np.int32))
        return sampler


@dataclass
class Distribution:
    probabilities: Floats
    """Of each token; 0 for those that were filtered out."""
    margin: float
    """How near a filter's decision came to being another one."""


def log_softmax(logits: NDArray[Any]) -> Floats:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def changed_logits(params: Params, logits: NDArray[np.float32], history: Sequence[int]) -> Floats:
    changed = logits.astype(np.float64)
    for token, bias in params.logit_bias.items():
        changed[token] += bias
    recent = history if params.repeat_last_n < 0 else history[max(len(history) - params.repeat_last_n, 0) :]
    for token, count in Counter(recent).items():
        if changed[token] > 0:
            changed[token] /= params.repeat_penalty
        else:
            changed[token] *= params.repeat_penalty
        changed[token] -= count * params.frequency_penalty + params.presence_penalty
    return changed


def distribution(params: Params, logits: NDArray[np.float32], history: Sequence[int]) -> Distribution:
    logits = changed_logits(params, logits, history)
    kept = np.lexsort((np.arange(logits.size), -logits))  # likeliest first, equal ones by id
    kept = kept[np.isfinite(logits[kept])]
    margins = [1.0]
    if 0 < params.top_k < len(kept):
        margins.append(logits[kept[params.top_k - 1]] - logits[kept[params.top_k]])
        kept = kept[: params.top_k]
    if params.typical_p < 1:
        surprise = -log_softmax(logits[kept])
        deviation = np.abs(surprise - (np.exp(-surprise) * surprise).sum())
        order = np.argsort(deviation, kind="stable")
        mass = np.exp(-surprise[order]).cumsum()
        margins.extend(np.abs(mass[:-1] - params.typical_p))
        count = 1 + np.count_nonzero(mass[:-1] <= params.typical_p)
        margins.extend(np.diff(deviation[order])[count - 1 : count])
        kept = kept[np.sort(order[:count])]
    if params.top_p < 1:
        mass = np.exp(log_softmax(logits[kept])).cumsum()
        margins.extend(np.abs(mass[:-1] - params.top_p))
        kept = kept[: 1 + np.count_nonzero(mass[:-1] < params.top_p)]
    if params.min_p > 0:
        ratio = np.exp(logits[kept] - logits[kept[0]])
        margins.extend(np.abs(ratio - params.min_p))
        kept = kept[ratio >= params.min_p]
    probabilities = np.zeros(logits.size)
    probabilities[kept] = np.exp(log_softmax(logits[kept] / params.temperature))
    return Distribution(probabilities, float(min(margins)))
