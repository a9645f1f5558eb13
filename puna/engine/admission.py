"""From a request to a sequence, if it can be run at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from puna._native import TextStream
from puna.backends.base import ModelInfo
from puna.engine.memory.ladder import Ladder
from puna.engine.model import Model
from puna.engine.observation.recorder import RequestRecord
from puna.engine.offload.session_status import NEEDS_PREFIX_TREE
from puna.engine.request import Request
from puna.engine.sequences.samplers import new_sampler
from puna.engine.sequences.sequence import Order, Sequence, shift_sizes
from puna.engine.settings import EngineSettings
from puna.engine.validation import (
    InvalidRequest,
    check_draft_model,
    check_grammar,
    check_request,
    check_stop,
    prompt_array,
)
from puna.kv.model_kv import ModelKv


def new_sequence(
    request: Request,
    model: Model,
    draft_model: Model | None,
    settings: EngineSettings,
    order: Order,
    namespace: str,
    record: Callable[[], RequestRecord],
    ladder: Ladder,
) -> Sequence:
    """Both models are awake. ladder: what idle models and other engines could give up.

    Raises InvalidRequest; NativeError for sampling parameters that make no sense.
    """
    info = model.device.info
    prompt = prompt_array(request.prompt, info.vocab_size)
    check_request(request, info)
    if request.pooling is not None and (info.is_encoder or info.pooling == "rank"):
        request = replace(request, pooling="last")  # what comes out there is all that is wanted
    if request.adapter and request.adapter not in model.adapters:
        raise InvalidRequest(f"adapter {request.adapter} is not loaded")
    if request.session is not None and settings.cache_policy != "prefix":
        raise InvalidRequest(NEEDS_PREFIX_TREE)
    check_stop(request.stop, model.token_table)
    if request.grammar:
        check_grammar(request.grammar, model.grammars)
        request = _ending_with_grammar(request, model.grammars.end_tokens if model.grammars else ())
    if draft_model is not None:
        check_draft_model(draft_model.device.info, info)
    context_length, num_windows = _context(request, info, model.kv, ladder)
    sampler = None
    if request.pooling is None:
        sampler = new_sampler(request.sampling)
        sampler.accept_many(prompt)
    return Sequence(
        request,
        prompt,
        order=order,
        namespace=namespace,
        context_length=context_length,
        can_shift=info.can_shift,
        table=model.kv.new_table(keeps_all=num_windows is None),
        sampler=sampler,
        text=TextStream(model.token_table, request.stop, request.stop_tokens, request.shown_tokens),
        record=record(),
        draft=None if draft_model is None else draft_model.drafter.new_state(),
        head=model.head.new_drafts() if draft_model is None and _may_draft(request) else None,
        adapter=model.adapters.get(request.adapter),
    )


def _may_draft(request: Request) -> bool:
    return request.pooling is None and request.num_draft != 0


def _ending_with_grammar(request: Request, end_tokens: Iterable[int]) -> Request:
    """By whichever of these a grammar ends, the reply ends."""
    return replace(request, stop_tokens=sorted({*request.stop_tokens, *end_tokens}))


def _context(request: Request, info: ModelInfo, kv: ModelKv, ladder: Ladder) -> tuple[int, int | None]:
    """Tokens that the request's sequence may have, and of how many tokens' windows it may hold all blocks at
    once; None: of all tokens'.

    Raises InvalidRequest if its prompt has more, or there can be no memory for it.
    """
    wanted = info.context_length if request.context_length is None else request.context_length
    num_prompt = len(request.prompt)
    length = min(wanted, info.context_length)
    if num_prompt > length:
        raise InvalidRequest(f"the prompt has {num_prompt} tokens, more than the context of {length}")
    if not kv.groups:
        return length, 1
    # Leases end. Until then, an error says more than an answer from a context that was cut to what they left.
    more_bytes = ladder.more_bytes
    most_bytes = kv.most_bytes_without_leases + more_bytes
    num_windows = _num_windows(request, info, length)
    while kv.bytes_for(length, num_windows) > most_bytes:
        length = kv.tokens_within(most_bytes, num_windows)  # which shifts earlier, and may need more for that
        num_windows = _num_windows(request, info, length)
    if (needed := kv.bytes_for(num_prompt, num_windows)) > kv.most_bytes + more_bytes:
        raise InvalidRequest(f"the prompt of {num_prompt} tokens {kv.describe_need(needed)}")
    return length, num_windows


def _num_windows(request: Request, info: ModelInfo, context_length: int) -> int | None:
    """See ModelKv.bytes_for(). When a context shifts, a window is moved to blocks that it had left, or, if it
    would reach, behind the shift, what had slid out of it before, all blocks have to be there.
    """
    last = None if request.max_tokens is None else len(request.prompt) + request.max_tokens
    if not (request.shift and info.can_shift) or (last is not None and last <= context_length):
        return 1
    num_moved = context_length - sum(shift_sizes(request, context_length))
    widest = max((group.window for group in info.groups if group.window is not None), default=0)
    return None if widest > num_moved + 1 else 2
