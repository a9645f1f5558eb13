"""How drafts are made and planned, plainly in Python: what the native code is compared with."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from math import log, log1p

import numpy as np
from numpy.typing import NDArray

from puna._native import StepCosts

LONGEST_MATCH = 32
"""Longer matches count as this long."""
_GOOD_MATCH = 8  # from here on, nothing better is looked for
_NUM_CANDIDATES = 6  # earlier places that are looked at
_MOST_STEPS = 24  # on the way to them
_FEWEST_SLOTS, _MOST_SLOTS = 1 << 13, 1 << 17
_MOST_INDEXED = 4096  # tokens indexed at a time; takes half a millisecond


def num_slots(num_tokens: int) -> int:
    """Of the table of pairs: a power of two, twice as many as tokens, within bounds."""
    return min(max(1 << (2 * num_tokens).bit_length(), _FEWEST_SLOTS), _MOST_SLOTS)


_UNLIKELY = 0.02  # drafts less likely than this are not worth a thought
_MEMORY = 1 / 16  # weight of the latest observation in an average

# How often a token follows a match of at least that length, before anything is known of the sequence.
_PRIOR_RATES = {2: 0.35, 3: 0.5, 4: 0.65, 8: 0.8, 16: 0.9, LONGEST_MATCH: 0.97}
_CLASSES = [max(0, sum(length >= least for least in _PRIOR_RATES) - 1) for length in range(LONGEST_MATCH + 1)]


class MatchRates:
    """How often a sequence goes on as it did at an earlier place, by the length of the match.

    This is seen at every token that has such a place, whether or not it was speculated on. So speculation
    that does not pay ends at no cost, and begins again when it would pay.
    """

    def __init__(self) -> None:
        self._rates = list(_PRIOR_RATES.values())

    def observe(self, match_length: int, was_right: bool) -> None:
        index = _CLASSES[match_length]
        self._rates[index] += _MEMORY * (was_right - self._rates[index])

    def chances(self, match_length: int, limit: int) -> list[float]:
        """Entry i: the probability that the first i + 1 drafts are all right. At most `limit` entries.

        A right draft makes the match longer, and so the next one more likely.
        """
        chances = []
        chance = 1.0
        for length in range(match_length, match_length + limit):
            chance *= self._rates[_CLASSES[min(length, LONGEST_MATCH)]]
            if chance < _UNLIKELY:
                break
            chances.append(chance)
        return chances


class NgramProposer:
    """Drafts the next tokens of one sequence. Takes 8 bytes for each of its tokens, and up to 512 KiB.

    The source is an earlier place whose last tokens are those of the sequence's end; `match_length` says how
    many. As long as the sequence goes on as it did there, the source moves along; otherwise it is looked up
    among the latest places of the last two tokens: the longest match wins, the latest of equals.

        ... a b c d e ........ a b c
                  ^ source            match_length 3, the draft is d e ...
    """

    def __init__(self, observer: MatchRates, num_tokens: int = 0) -> None:
        """num_tokens: that the sequence is likely to have; with many more, some earlier places are missed."""
        self.match_length = 0
        """Tokens before the source that equal the sequence's last ones; 0: there is no source."""
        self._observer = observer
        self._tokens = array("i")
        self._source = 0
        # Where the second token of a pair of this hash stood last; -1: nowhere.
        self._latest = array("i", [-1]) * num_slots(num_tokens)
        self._previous = array("i")  # where such a pair stood before the one that ends here

    def update(self, tokens: NDArray[np.int32]) -> None:
        """Takes in what is new. tokens: [n], the whole sequence, which only ever grows.

        Of very many new tokens only some are taken in at each call; until all are, nothing is drafted.
        """
        num_known = len(self._tokens)
        new = tokens[num_known : num_known + _MOST_INDEXED].tolist()
        self._tokens.extend(new)
        for token in new:
            if self.match_length == 0:
                break
            self._follow(token)
        self._index(new)
        if len(self._tokens) < len(tokens):
            self.match_length = 0
        elif self.match_length < _GOOD_MATCH:
            self._search()

    def propose(self, count: int) -> list[int]:
        """The next `count` tokens; none if there is no source.

        Where the source reaches the sequence's end, it goes on in the draft itself: what repeats with a short
        period is expected to go on repeating.
        """
        if self.match_length == 0 or count == 0:
            return []
        known = self._tokens[self._source : self._source + count].tolist()
        return (known * -(-count // len(known)))[:count]

    def _follow(self, token: int) -> None:
        was_right = self._tokens[self._source] == token
        self._observer.observe(self.match_length, was_right)
        self._source += 1
        self.match_length = min(self.match_length + 1, LONGEST_MATCH) if was_right else 0

    def _index(self, new: list[int]) -> None:
        latest, previous, mask = self._latest, self._previous, len(self._latest) - 1
        position = len(previous)
        before = self._tokens[position - 1] if position else -1  # -1: the first token ends no pair
        for token in new:
            # Odd factors, so that each of two tokens alone decides the slot among pairs with the same other.
            slot = (before * 0x9E3779B1 + token * 0x85EBCA77 >> 12) & mask
            previous.append(latest[slot])
            latest[slot] = position
            position += 1
            before = token

    def _search(self) -> None:
        """Moves the source to a place with a longer match, if there is one."""
        tokens, last = self._tokens, len(self._tokens) - 1
        candidate = self._previous[last] if last > 0 else -1
        num_left = _NUM_CANDIDATES
        for _ in range(_MOST_STEPS):
            # To be longer, a match must at least go on where the best one so far ends.
            length = self.match_length or 1
            if candidate < length or length == LONGEST_MATCH or num_left == 0:
                return
            if tokens[candidate] == tokens[last] and tokens[candidate - 1] == tokens[last - 1]:
                num_left -= 1
                if tokens[candidate - length] == tokens[last - length]:
                    length = self._common_length(candidate)
                    if length > self.match_length:
                        self.match_length, self._source = length, candidate + 1
            candidate = self._previous[candidate]

    def _common_length(self, candidate: int) -> int:
        """How many tokens up to this place equal the sequence's last ones. The last two are known to."""
        tokens, last = self._tokens, len(self._tokens) - 1
        longest = min(LONGEST_MATCH, candidate + 1)
        length = 2
        while length < longest and tokens[candidate - length] == tokens[last - length]:
            length += 1
        return length


class NgramSpeculator:
    """Of one sequence."""

    def __init__(self, num_tokens: int = 0) -> None:
        """num_tokens: that the sequence is likely to have."""
        self._rates = MatchRates()
        self._proposer = NgramProposer(self._rates, num_tokens)

    def update(self, tokens: NDArray[np.int32]) -> None:
        """tokens: [n], the whole sequence, which only ever grows. To be called before each step."""
        self._proposer.update(tokens)

    def chances(self, limit: int) -> list[float]:
        """As MatchRates.chances; empty if there is nothing to draft from."""
        length = self._proposer.match_length
        return self._rates.chances(length, limit) if length else []

    def propose(self, count: int) -> list[int]:
        """The next `count` tokens; `count` is at most the number of chances."""
        return self._proposer.propose(count)


_MOST_UNTRIED = 0.5  # of a token's share of the step: what a further one costs at most, until it was tried
_MARGIN = 1.02  # speculation must look better than none by this factor: costs are measured, so inexact


def plan_drafts(
    chances: Items[Items[float]], num_tokens: int, num_decodes: int, costs: StepCosts, round_s: float = 0.0
) -> list[int]:
    """How many drafts of each sequence the next step should verify.

    chances: by sequence, the probability that its first 1, 2, ... drafts are all right.
    num_tokens: in the step without drafts; num_decodes: those of them that are sequences' latest tokens.
    round_s: what drafting itself takes, for one token more of all sequences.

    The drafts chosen have the largest product of all decoding sequences' rates (tokens per second): what
    one sequence gains, in percent, must be more than what the longer step costs all of them together. The
    time for the tokens of prompts in the step counts as given.
    """
    counts = [0] * len(chances)
    if num_decodes < costs.fewest_tokens:
        return counts  # how long it takes without drafts is not known
    step_s, decode_s = _seconds(costs, num_tokens), _seconds(costs, num_decodes)
    order = _by_gain(chances)
    total_gain = best = 0.0
    num_best = num_rounds = 0
    for num_drafts, (gain, nth, _) in enumerate(order, start=1):
        total_gain += gain
        num_rounds = max(num_rounds, nth)
        longer_s = _seconds(costs, num_tokens + num_drafts) - step_s
        if not costs.has_seen(num_tokens + num_drafts):
            longer_s = min(longer_s, num_drafts * _MOST_UNTRIED * decode_s / num_decodes)
        slowdown = (1 + (max(longer_s, 0.0) + num_rounds * round_s) / decode_s) * _MARGIN
        if (value := total_gain - num_decodes * log(slowdown)) > best:
            best, num_best = value, num_drafts
    for _, _, index in order[:num_best]:
        counts[index] += 1
    return counts


def _seconds(costs: StepCosts, num_tokens: int) -> float:
    seconds = costs.estimate(num_tokens)
    assert seconds is not None, "no step has been seen"
    return seconds


def _by_gain(chances: Items[Items[float]]) -> list[tuple[float, int, int]]:
    """(by how much the nth draft raises the logarithm of its sequence's rate, n, sequence), best first.

    Of each sequence a draft gains less than the one before, so the first ones are a sequence's first drafts.
    """
    gains = []
    for index, of_sequence in enumerate(chances):
        expected = 1.0
        for nth, chance in enumerate(of_sequence, start=1):
            gains.append((log1p(chance / expected), nth, index))
            expected += chance
    gains.sort(key=lambda item: -item[0])
    return gains
