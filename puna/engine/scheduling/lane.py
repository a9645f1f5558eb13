"""A model in the scheduler, and how its sequences take memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from puna.engine.caching.cache_policy import CachePolicy
from puna.engine.scheduling.sequence import Sequence
from puna.engine.scheduling.step_costs import StepCosts
from puna.engine.scheduling.stream_pace import StreamPace
from puna.kv import BLOCK_TOKENS, BlockPool
from puna.kv.blocks import blocks_for


@dataclass
class Lane:
    """What the scheduler knows of a resident model."""

    model_id: str
    pool: BlockPool
    policy: CachePolicy
    costs: StepCosts
    weight: float
    """Its share of the device's time, relative to the other models with work."""
    running: list[Sequence] = field(default_factory=list)
    """In order."""
    served_s: float = 0.0
    """Virtual time: seconds of the device, by weight."""
    turn: int = 0
    """Which of the streams come first, if there are too many for a step."""
    pace: StreamPace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = StreamPace(self.costs)

    @property
    def num_streams(self) -> int:
        return sum(sequence.num_generated > 0 and not sequence.is_paused for sequence in self.running)


def needed_blocks(sequence: Sequence) -> int:
    """Blocks that a sequence will take for the tokens it has, and one to grow."""
    num_tokens = min(sequence.num_tokens, sequence.context_length)
    return max(blocks_for(num_tokens) - sequence.table.num_blocks, 0) + 1


def missing_blocks(sequence: Sequence, num_tokens: int) -> int:
    """Blocks that a sequence must get for its next `num_tokens` tokens."""
    return max(blocks_for(sequence.position + num_tokens) - sequence.table.num_blocks, 0)


def fits(lane: Lane, sequence: Sequence, num_tokens: int) -> bool:
    if sequence.position == sequence.context_length:
        if not lane.policy.shift(sequence):
            return False
        sequence.num_shifts += 1
        sequence.record.shifted(sequence.num_discard)
    return sequence.table.grow(sequence.position + num_tokens)


def next_chunk(sequence: Sequence, budget: int) -> int:
    """How many of the pending tokens to compute: whole blocks, which others can then use, if possible."""
    room = sequence.context_length - sequence.position or sequence.num_discard
    num_tokens = min(sequence.num_pending, budget, room)
    if num_tokens == sequence.num_pending:
        return num_tokens
    whole = (sequence.position + num_tokens) // BLOCK_TOKENS * BLOCK_TOKENS - sequence.position
    return whole if whole > 0 else num_tokens


def is_sure(lane: Lane, sequence: Sequence) -> bool:
    """Whether it, and those before it, will take no more than its model is sure of."""
    earlier = [other for other in lane.running if other.order < sequence.order]
    return lane.pool.is_sure_of(sum(map(needed_blocks, [*earlier, sequence])))
