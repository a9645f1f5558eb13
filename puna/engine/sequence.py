"""A running request: its tokens, its place in the cache, its sampler."""

from __future__ import annotations

import secrets
import time

import numpy as np
from numpy.typing import NDArray

from puna._native import Sampler
from puna.engine.request import FinishReason, Request, RequestStats, SamplingParams, StepOutput
from puna.kv import SequenceTable


def new_sampler(params: SamplingParams, prompt: list[int]) -> Sampler:
    """A sampler that has seen the prompt. Raises NativeError for parameters that make no sense."""
    sampler = Sampler(
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
    sampler.accept_many(np.array(prompt, dtype=np.int32))
    return sampler


class Sequence:
    """State is two counters; what a sequence needs next follows from them.

    | KV in the cache   | pending               |
    0                   num_computed            num_tokens

    One pending token is a decode step, more are a prefill; after the last pending one the next is sampled.
    """

    def __init__(
        self, request: Request, *, arrival: int, context_length: int, table: SequenceTable, sampler: Sampler
    ) -> None:
        self.id = request.id
        self.model_id = request.model_id
        self.arrival = arrival
        self.table = table
        self.sampler = sampler
        self.num_computed = 0
        self.num_tokens = self.num_prompt = len(request.prompt)
        # The stop token is not kept, so one token more than the context can be drawn but never computed.
        self.context_length = context_length
        room = max(context_length - self.num_prompt, 1)
        self.max_tokens = room if request.max_tokens is None else min(request.max_tokens, room)
        self.num_threads = request.num_threads
        self.stop_tokens = frozenset(request.stop_tokens)
        self.with_logprobs = request.sampling.num_logprobs >= 0
        self._tokens: NDArray[np.int32] = np.array(request.prompt, dtype=np.int32)
        self._num_drawn = 0
        self._started_ns = 0
        self._first_token_ns = 0

    @property
    def num_pending(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def num_generated(self) -> int:
        return self.num_tokens - self.num_prompt

    def pending_tokens(self, count: int) -> NDArray[np.int32]:
        """The next `count` tokens to compute."""
        return self._tokens[self.num_computed : self.num_computed + count]

    def start_clock(self) -> None:
        """At the first step; a preempted sequence's clock runs on."""
        self._started_ns = self._started_ns or time.monotonic_ns()

    def append(self, token: int) -> FinishReason | None:
        """Takes a drawn token; says why the sequence is finished, if it is. A stop token is not kept."""
        if self._num_drawn == 0:
            self._first_token_ns = time.monotonic_ns()
        self._num_drawn += 1
        if token in self.stop_tokens:
            return "stop"
        if self.num_tokens == len(self._tokens):
            self._tokens = np.resize(self._tokens, max(64, 2 * len(self._tokens)))
        self._tokens[self.num_tokens] = token
        self.num_tokens += 1
        return "length" if self.num_generated >= self.max_tokens else None

    def rewind(self) -> None:
        """Gives the blocks back; what was computed will be computed again, what was drawn stays."""
        self.table.release()
        self.num_computed = 0

    def finish(self, reason: FinishReason, error: str | None = None) -> StepOutput:
        """Gives the blocks back and closes the account."""
        self.table.release()
        return StepOutput(request_id=self.id, finish_reason=reason, error=error, stats=self._stats())

    def _stats(self) -> RequestStats:
        now = time.monotonic_ns()
        started = self._started_ns or now
        first_token = self._first_token_ns or now
        return RequestStats(
            prompt_tokens=self.num_prompt,
            cached_tokens=0,
            prompt_ns=first_token - started,
            generated_tokens=self._num_drawn,
            generation_ns=now - first_token,
        )
