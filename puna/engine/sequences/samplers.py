"""Samplers for what requests ask for."""

from __future__ import annotations

import secrets

from puna._native import Sampler
from puna.engine.request import SamplingParams


def new_sampler(params: SamplingParams) -> Sampler:
    """Raises NativeError for parameters that make no sense."""
    return Sampler(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        typical_p=params.typical_p,
        repeat_last_n=params.repeat_last_n,
        repeat_penalty=params.repeat_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        seed=secrets.randbits(63) if params.seed is None else params.seed,
        logit_bias=params.logit_bias,
        num_logprobs=params.num_logprobs,
    )
