"""From a request to a sequence, if it can be run at all."""

from __future__ import annotations

from collections.abc import Callable

from puna._native import TextStream
from puna.backends.base import ModelInfo
from puna.engine.model import Model
from puna.engine.observation.recorder import RequestRecord
from puna.engine.request import Request
from puna.engine.sequences.samplers import new_sampler
from puna.engine.sequences.sequence import Order, Sequence, shift_sizes
from puna.engine.settings import EngineSettings
from puna.engine.validation import (
    InvalidRequest,
    check_draft_model,
    check_request,
    check_stop,
    context_limit,
    prompt_array,
)


def new_sequence(
    request: Request,
    model: Model,
    draft_model: Model | None,
    settings: EngineSettings,
    order: Order,
    namespace: str,
    record: Callable[[], RequestRecord],
    more_bytes: int,
) -> Sequence:
    """Both models are awake. more_bytes: of KV memory that idle models and other engines could give up.

    Raises InvalidRequest; NativeError for sampling parameters that make no sense.
    """
    info = model.device.info
    prompt = prompt_array(request.prompt, info.vocab_size)
    check_request(request, info.vocab_size)
    if request.session is not None and settings.cache_policy != "prefix":
        raise InvalidRequest("sessions are found through the prefix cache, which is not in use")
    check_stop(request.stop, model.token_table)
    if draft_model is not None:
        check_draft_model(draft_model.device.info, info)
    context_length = context_limit(request, info, model.kv, more_bytes)
    sampler = new_sampler(request.sampling)
    sampler.accept_many(prompt)
    return Sequence(
        request,
        prompt,
        order=order,
        namespace=namespace,
        context_length=context_length,
        can_shift=info.can_shift,
        table=model.kv.new_table(keeps_all=_keeps_all(request, info, context_length)),
        sampler=sampler,
        text=TextStream(model.token_table, request.stop, request.stop_tokens),
        record=record(),
        draft=None if draft_model is None else draft_model.drafter.new_state(),
    )


def _keeps_all(request: Request, info: ModelInfo, context_length: int) -> bool:
    """Whether a window would reach, behind a context shift, what had slid out of it before."""
    most = None if request.max_tokens is None else len(request.prompt) + request.max_tokens
    if not (request.shift and info.can_shift) or (most is not None and most <= context_length):
        return False
    num_moved = context_length - sum(shift_sizes(request, context_length))
    return any(group.window is not None and group.window > num_moved + 1 for group in info.groups)
