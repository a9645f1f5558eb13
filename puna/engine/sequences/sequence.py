"""A running request: its tokens, its place in the cache, its sampler."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from puna._native import NgramDrafter, ReplyGrammar, Sampler, TextStream
from puna.backends.base import DeviceAdapter
from puna.engine.observation.recorder import RequestRecord
from puna.engine.request import FinishReason, Request, RequestStats, StepOutput, TokenLogprob
from puna.engine.sequences.draft_state import DraftSource, DraftState
from puna.engine.sequences.head_drafts import HeadDrafts
from puna.engine.sequences.pool import Pool
from puna.engine.sequences.snapshot_plan import SnapshotPlan
from puna.kv import BLOCK_TOKENS, Cursor, SequenceTable

MAX_DRAFT = 16
"""Drafts of one sequence in one step, at most."""
_ENDLESS = 1 << 62  # tokens

Order = tuple[float, int]
"""The place in the order of all sequences: the smaller goes first. No two have the same."""


def shift_sizes(request: Request, context_length: int) -> tuple[int, int]:
    """Tokens that a full context keeps at its start, and how many it discards behind them."""
    num_keep = min(max(request.num_keep, 0), context_length - 1)
    return num_keep, max((context_length - num_keep) // 2, 1)


def _most_drafts(request: Request) -> int:
    return MAX_DRAFT if request.num_draft is None else min(request.num_draft, MAX_DRAFT)


class Sequence:
    """State is three counters; what a sequence needs next follows from them.

    | KV was computed       | pending               |
    0                       num_computed            num_tokens

    One pending token is a decode step, more are a prefill; after the last pending one the next is sampled.

    When the context is full, the oldest tokens behind the first `num_keep` are discarded and the others move
    down. How many is always the same, so the history and the number of such shifts say where a token lies:
    a sequence that starts over shifts at the same tokens again, and comes to the same output.
    """

    def __init__(
        self,
        request: Request,
        prompt: NDArray[np.int32],
        *,
        order: Order,
        namespace: str = "",
        context_length: int,
        can_shift: bool,
        table: SequenceTable,
        sampler: Sampler | None,
        text: TextStream,
        record: RequestRecord,
        draft: DraftState | None = None,
        head: HeadDrafts | None = None,
        adapter: DeviceAdapter | None = None,
    ) -> None:
        """prompt: the request's, and from here on this object's."""
        # Without the numbers of a long prompt, which take ten times as much memory as the array.
        self.request = replace(request, prompt=[])
        self.id = request.id
        self.model_id = request.model_id
        self.adapter = adapter
        self.order = order
        self.namespace = namespace
        """Its KV is shared only with sequences of the same one."""
        self.table = table
        self.sampler = sampler
        """None: nothing is ever drawn."""
        self.text = text
        """The text of its reply."""
        self._held_logprobs: list[TokenLogprob] = []  # of tokens whose text has not come out yet
        self.record = record
        self.cursor: Cursor | None = None
        """How far the prefix cache knows the table; None: it has nothing to do with it (any more)."""
        self.snapshots = SnapshotPlan()
        self.is_running = False
        self.is_paused = False
        """Nobody reads what it has brought: no more is computed for it until that changes."""
        self.grammar: ReplyGrammar | None = None
        """What its reply is held to."""
        self.awaits_grammar = bool(request.grammar)
        """It is being compiled: before, nothing is drawn."""
        self.was_admitted = False
        self.num_known = 0
        """Tokens whose KV it had when it was preempted, or was found when it was looked for on disk."""
        self.num_looks = 0
        """How often it was looked for there anew since."""
        self.num_computed = 0
        self.num_shifts = 0
        self.num_tokens = self.num_prompt = len(prompt)
        self.context_length = context_length
        self.num_keep, self.num_discard = shift_sizes(request, context_length)
        self.pool = None if request.pooling is None else Pool(request.pooling, self.num_prompt)
        """Of one that ends with its prompt, and whose embedding is wanted."""
        self.end = self.num_prompt + self._most_generated(request, request.shift and can_shift)
        """Tokens that it has at the end, at most."""
        self.most_drafts = 0 if self.pool is not None else _most_drafts(request)
        self.ngrams = NgramDrafter(self.num_prompt, request.stop_tokens) if self.most_drafts else None
        """Drafts from its own text."""
        self.draft = draft
        """The state of its draft model."""
        self.head = head
        """That of its model's prediction head."""
        self.with_logprobs = request.sampling.num_logprobs >= 0
        self.history = prompt
        """[at least num_tokens]"""
        self._num_drafted = self._num_accepted = 0
        self.num_cached = 0
        """Tokens of the prompt that were in the cache."""
        self._started_over = False

    def _most_generated(self, request: Request, shifts: bool) -> int:
        # The last token is drawn but never computed, so it needs no room.
        if self.pool is not None:
            return 1  # never drawn
        room = _ENDLESS if shifts else max(self.context_length - self.num_prompt, 1)
        return room if request.max_tokens is None else min(request.max_tokens, room)

    @property
    def num_pending(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def num_computable(self) -> int:
        """Of the pending tokens, those that may be computed now."""
        return 0 if self.is_paused else self.num_pending - self.awaits_grammar

    @property
    def num_generated(self) -> int:
        return self.num_tokens - self.num_prompt

    @property
    def position(self) -> int:
        """Of the next pending token, and how many tokens have KV in the table."""
        return self.num_computed - self.num_shifts * self.num_discard

    @property
    def fits_block(self) -> bool:
        """Whether the next token has a place in the context and in a block that the table holds, and the
        state behind it has one, too.
        """
        position = self.position
        has_place = position % BLOCK_TOKENS != 0 and position < self.context_length
        return has_place and not self.table.needs_state_block

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[num_tokens] prompt and answer, whatever was discarded."""
        return self.history[: self.num_tokens]

    @property
    def cached_tokens(self) -> NDArray[np.int32]:
        """[position] those whose KV is in the table, in its order."""
        computed = self.history[: self.num_computed]
        if self.num_shifts == 0:
            return computed
        keep = self.num_keep
        return np.concatenate([computed[:keep], computed[keep + self.num_shifts * self.num_discard :]])

    @property
    def num_findable(self) -> int:
        """Tokens, from the first on, whose KV may come from elsewhere."""
        # One token is left to compute: without it there would be nothing to sample from. Past a full
        # context, positions are no longer those of the history.
        most = min(self.num_tokens - 1, self.context_length)
        return most if self.pool is None else min(most, self.pool.num_findable)

    @property
    def may_skip_prompt(self) -> bool:
        """Whether all of its prompt but one token may come from elsewhere."""
        return self.num_findable >= self.num_prompt - 1

    @property
    def is_content_addressed(self) -> bool:
        """Whether any other sequence with the same tokens would have computed the same KV."""
        return self.num_shifts == 0

    @property
    def drafts(self) -> DraftSource | None:
        """What drafts for it, beside its text."""
        return self.head if self.draft is None else self.draft

    def skip(self, count: int) -> None:
        """The KV of the next `count` tokens was found in the cache."""
        self.num_computed += count
        if count and self.head is not None:
            self.head.state.forget()
        if not self._started_over:
            self.num_cached += min(count, self.num_prompt - self.num_cached)

    def extend(self, tokens: Items[int], num_accepted: int, num_drafted: int) -> None:
        """Takes what was drawn, without a stop token.

        num_accepted: of `num_drafted` drafts, those that were right and belong to it; their KV is there.
        """
        end = self.num_tokens + len(tokens)
        if end > len(self.history):
            self.history = np.resize(self.history, max(64, 2 * end))
        if len(tokens) == 1:  # mostly: an assignment to a slice takes longer
            self.history[self.num_tokens] = tokens[0]
        else:
            self.history[self.num_tokens : end] = tokens
        self.num_tokens = end
        self.num_computed += num_accepted
        self._num_drafted += num_drafted
        self._num_accepted += num_accepted
        if num_accepted < num_drafted:
            self.table.truncate(self.position)

    def take_logprobs(self, drawn: list[TokenLogprob], num_released: int) -> list[TokenLogprob]:
        """Those of the next tokens whose text comes out, after what was drawn."""
        self._held_logprobs += drawn
        released, self._held_logprobs = self._held_logprobs[:num_released], self._held_logprobs[num_released:]
        return released

    def stop_drafting(self) -> None:
        """From now on, none of its tokens are drafted."""
        self.ngrams = self.head = None
        if self.draft is not None:
            self.draft.release()
            self.draft = None

    def start_over(self) -> None:
        """The table was given back: what was computed will be computed again, what was drawn stays."""
        self.cursor = None
        self.num_computed = self.num_shifts = 0
        if self.head is not None:
            self.head.state.forget()
        self._started_over = self.was_admitted
        if not self._started_over:
            self.num_cached = 0

    def finish(self, reason: FinishReason, error: str | None = None) -> StepOutput:
        """Closes the account."""
        now_ns = self.record.finished(reason)
        return StepOutput(
            request_id=self.id,
            finish_reason=reason,
            stop_string=self.text.stop_string,
            error=error,
            stats=self._stats(now_ns),
        )

    def _stats(self, now_ns: int) -> RequestStats:
        started_ns = self.record.started_ns or now_ns
        first_token_ns = self.record.first_token_ns or now_ns
        return RequestStats(
            prompt_tokens=self.num_prompt,
            cached_tokens=self.num_cached,
            prompt_ns=first_token_ns - started_ns,
            generated_tokens=self.record.num_drawn,
            generation_ns=now_ns - first_token_ns,
            drafted_tokens=self._num_drafted,
            accepted_tokens=self._num_accepted,
        )
