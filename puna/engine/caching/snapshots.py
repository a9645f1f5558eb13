"""When the state of recurrent layers is kept, and for how long: what a snapshot costs, and what it is worth.

A snapshot takes as much memory as the KV of some hundreds or thousands of tokens, and saves computing the
tokens behind the one before it to those who begin with the same. Taking one copies nothing, but ends a step's
chunk there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_LEAST_SPACING, _MOST_SPACING = 512, 4096  # tokens


def spacing_of(state_bytes: int, token_bytes: float) -> int:
    """Tokens behind which a long prompt's state is kept anyhow: those whose KV takes as much memory.

    token_bytes: KV of one token.
    """
    worth = state_bytes / token_bytes if token_bytes else _MOST_SPACING
    return int(min(max(worth, _LEAST_SPACING), _MOST_SPACING))


def stride_of(spacing: int) -> int:
    """Tokens of a prompt under way behind which its state is kept, until two later ones are. What is lost
    when the worker dies is what came behind the last of them that is on disk.
    """
    return max(spacing // 2, _LEAST_SPACING)


def stops_of(begin: int, boundaries: Sequence[int], num_matched: int, spacing: int) -> list[int]:
    """Where to take snapshots of a prompt that goes on from `begin`: before the reply always, at the other
    boundaries where that saves much, and where it parts from what is known, as others have done there.

    boundaries: see Request; num_matched: tokens that are known, though not all of their states.
    """
    stops = []
    latest = begin
    for position in boundaries[:-1]:
        if position - latest >= spacing // 8:
            stops.append(position)
            latest = position
    stops += [position for position in boundaries[-1:] if position > latest]
    before = max((position for position in [begin, *stops] if position <= num_matched), default=begin)
    if num_matched - before >= spacing // 2:
        stops.append(num_matched)
    return stops


def worn_out(positions: Sequence[int], useful: Collection[int], spacing: int) -> Iterable[int]:
    """Those of a path's snapshots that are not worth their memory any more, now that there are later ones.

    Kept are the latest two, those where others are likely to part, and of the rest fewer the further back:
    whoever parts there computes at most about as much again as is not shared anyway.

    positions: ascending.
    """
    *earlier, last = positions or [0]
    next_kept = earlier[-1] if earlier else last
    for position in reversed(earlier[:-1]):
        if position in useful or next_kept - position >= max(spacing, last - next_kept):
            next_kept = position
        else:
            yield position
