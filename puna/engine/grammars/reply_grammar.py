"""What the grammar of one reply allows next."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items

from llguidance import LLMatcher

from puna._native import TokenMask
from puna.engine.grammars.limits import REPLY_S, TOKEN_S


class GrammarError(ValueError):
    """A grammar that cannot be compiled, or a reply that cannot go on with it; the text says why."""


class CompiledGrammar:
    """For any number of replies. Its automaton, which grows as they go on, is theirs in common."""

    def __init__(self, matcher: LLMatcher, num_tokens: int) -> None:
        """matcher: at the beginning of a reply. num_tokens: of the vocabulary."""
        self._matcher = matcher
        self.num_tokens = num_tokens
        self.has_failed = False
        """A limit was exceeded with it: it is not to be used for further replies."""

    def new_matcher(self) -> LLMatcher:
        """At the beginning of a reply."""
        return self._matcher.deep_copy()


class _Stopwatch:
    """Processor time spent within it. A class, since it runs several times for each token."""

    __slots__ = ("_start_s", "spent_s")

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = time.thread_time()

    def __exit__(self, *error: object) -> None:
        self.spent_s += time.thread_time() - self._start_s


class ReplyGrammar:
    """Where one reply stands in its grammar. For one thread at a time."""

    def __init__(self, compiled: CompiledGrammar) -> None:
        self._compiled = compiled
        self._matcher = compiled.new_matcher()
        self._tokens: list[int] = []  # that it has accepted
        self._masks: list[TokenMask] = []
        self._work = _Stopwatch()

    def accept(self, tokens: Items[int]) -> None:
        """The reply goes on with these, which its masks allowed. Raises GrammarError."""
        self._tokens += tokens
        with self._work:
            if not self._matcher.consume_tokens(list(tokens)):
                raise self._error()

    def forced(self) -> list[int]:
        """The next tokens, as far as there is no choice; a token may be left out."""
        with self._work:
            return [] if self._matcher.is_stopped() else self._matcher.compute_ff_tokens()

    def num_admitted(self, drafts: Items[int]) -> int:
        """How many of them, from the first on, the grammar may allow; never fewer than the masks do."""
        with self._work:
            return 0 if self._matcher.is_stopped() else self._matcher.validate_tokens(list(drafts))

    def masks(self, count: int) -> list[TokenMask]:
        """For the next tokens, one behind the other, to be filled by compute()."""
        num_tokens = self._compiled.num_tokens
        self._masks += [TokenMask(num_tokens) for _ in range(count - len(self._masks))]
        masks = self._masks[:count]
        for mask in masks:
            mask.begin()
        return masks

    def compute(self, drafts: Items[int], masks: Items[TokenMask]) -> None:
        """Fills the first mask, and those behind each of the drafts. Behind a draft that is not allowed there
        is nothing to be known, which is no fault of the reply. Raises GrammarError, which is one.
        """
        if self._work.spent_s > REPLY_S + TOKEN_S * len(self._tokens):
            raise GrammarError("the grammar of the reply takes too long")
        with self._work:
            num_taken = self._fill_all(drafts, masks)
            if num_taken:
                self._take_back(num_taken)

    def _fill_all(self, drafts: Items[int], masks: Items[TokenMask]) -> int:
        """Returns how many drafts the matcher has taken for that."""
        num_taken = 0
        while self._fill(masks[num_taken]) and num_taken < len(drafts):
            draft = drafts[num_taken]
            if not masks[num_taken].allows(draft) or not self._matcher.try_consume_tokens([draft]):
                break
            num_taken += 1
        for mask in masks[num_taken + 1 :]:
            mask.fail("it stands behind a draft that is not allowed")
        return num_taken

    def _fill(self, mask: TokenMask) -> bool:
        self._matcher.unsafe_compute_mask_ptr(mask.address, mask.num_bytes)
        if self._matcher.is_error():
            mask.fail(str(self._error()))
            return False
        mask.finish()
        return True

    def _take_back(self, num_tokens: int) -> None:
        if self._matcher.is_error() or not self._matcher.rollback(num_tokens):
            # What failed was behind drafts: the reply itself may go elsewhere.
            self._matcher = self._compiled.new_matcher()
            self._matcher.consume_tokens(self._tokens)

    def _error(self) -> GrammarError:
        self._compiled.has_failed = True
        return GrammarError(f"the reply cannot go on in its grammar: {first_line(self._matcher.get_error())}")


def first_line(error: str) -> str:
    """Of what llguidance says: the rest is its own state."""
    return error.split("\n", 1)[0][:500]
