"""How many tokens of which prompts a step takes."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from puna.engine.model import Model
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.kv import BLOCK_TOKENS


def prefill_budget(model: Model, models: Iterable[Model], settings: EngineSettings, num_decodes: int) -> int:
    """Prompt tokens that fit in a step beside the streams of all models, which wait for its end."""
    allowed_s = allowed_seconds(model, models, settings)
    if allowed_s is None:
        return settings.prefill_tokens
    for num_tokens in range(settings.prefill_tokens, settings.min_prefill_tokens, -BLOCK_TOKENS):
        estimate_s = model.costs.estimate(num_decodes + num_tokens)
        if estimate_s is not None and estimate_s <= allowed_s:
            return num_tokens
    return settings.min_prefill_tokens


def allowed_seconds(model: Model, models: Iterable[Model], settings: EngineSettings) -> float | None:
    """How long a step with prompts of the model may take beside the streams of all models; None: there are
    none.
    """
    streaming = [other for other in models if other.num_streams]
    if not streaming:
        return None
    stream_s = max(other.pace.estimate(other.num_streams) for other in streaming)
    # A step that few wait for, and many gain by, may be longer.
    num_prompts = sum(sequence.num_pending > 1 for sequence in model.running)
    num_streams = sum(other.num_streams for other in streaming)
    slowdown = settings.max_slowdown * (1 + num_prompts / num_streams)
    return max(slowdown * stream_s, settings.unnoticed_s)


def text_budget(model: Model, models: Iterable[Model], settings: EngineSettings) -> int:
    """Tokens of an encoder's texts that a step takes: as many as its models compute in a moment, which is a
    lot of small ones; beside streams, no more than are a prompt's share of a step.
    """
    if any(other.num_streams for other in models):
        return prefill_budget(model, models, settings, 0)
    for num_tokens in range(settings.most_text_tokens, settings.prefill_tokens, -settings.prefill_tokens):
        estimate_s = model.costs.estimate(num_tokens)
        if estimate_s is not None and estimate_s <= settings.text_step_s:
            return num_tokens
    return settings.prefill_tokens


def whole_texts(texts: list[Sequence], budget: int, most: int) -> list[Sequence]:
    """The encoder's texts of a step: the first in order, and others as far as there is room for them."""
    taken: list[Sequence] = []
    for sequence in texts:
        if len(taken) == most:
            break
        if not taken or sequence.num_pending <= budget:
            taken.append(sequence)
            budget -= sequence.num_pending
    return taken


def shorter_prompts(prompts: list[Sequence]) -> list[Sequence]:
    """Those that may pass the first in order, the shortest first: less is to be computed of them, and their
    priority is no lower.
    """
    first = prompts[0]
    length, priority = first.num_pending, first.request.priority
    shorter = [s for s in prompts[1:] if s.num_pending < length and s.request.priority >= priority]
    return sorted(shorter, key=attrgetter("num_pending"))


def passing_share(model: Model, shorter: list[Sequence], budget: int, most: int) -> int:
    """How many of a step's prompt tokens are for the shorter prompts: half, or all of every other step if it
    is too small to be shared. most: slices.
    """
    if not shorter:
        return 0
    if budget >= 2 * BLOCK_TOKENS and most > 1:
        return min(budget // 2, sum(sequence.num_pending for sequence in shorter))
    model.lets_pass = not model.lets_pass
    return budget if model.lets_pass else 0


def next_chunk(sequence: Sequence, budget: int) -> int:
    """How many of the pending tokens to compute: as far as a snapshot is to be taken, or whole blocks, which
    others can then use, if possible.
    """
    room = sequence.context_length - sequence.position or sequence.num_discard
    next_stop = sequence.snapshots.room(sequence.position, sequence.num_computable)
    num_tokens = min(next_stop, budget, room)
    if num_tokens == next_stop:
        return num_tokens
    whole = (sequence.position + num_tokens) // BLOCK_TOKENS * BLOCK_TOKENS - sequence.position
    return whole if whole > 0 else num_tokens
