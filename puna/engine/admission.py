"""From a request to a sequence, if it can be run at all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puna._native import TextStream, TokenTable
from puna.backends.base import ModelInfo
from puna.engine.observation.recorder import Recorder
from puna.engine.request import Request
from puna.engine.resident import Resident
from puna.engine.scheduling.sequence import Order, Sequence
from puna.engine.settings import EngineSettings
from puna.engine.speculation.draft_state import DraftState
from puna.engine.steps.samplers import new_sampler
from puna.engine.validation import (
    InvalidRequest,
    check_draft_model,
    check_request,
    check_stop,
    context_limit,
)
from puna.kv import SequenceTable


def new_sequence(
    request: Request,
    models: Mapping[str, Resident],
    settings: EngineSettings,
    order: Order,
    namespace: str,
    recorder: Recorder,
    table: TokenTable | None,
) -> Sequence:
    """table: of the model's tokens.

    Raises InvalidRequest; NativeError for sampling parameters that make no sense.
    """
    model = models.get(request.model_id)
    if model is None:
        raise InvalidRequest(f"model {request.model_id} is not loaded")
    info = model.device_model.info
    check_request(request, info.vocab_size)
    if request.session is not None and settings.cache_policy != "prefix":
        raise InvalidRequest("sessions are found through the prefix cache, which is not in use")
    check_stop(request.stop, table)
    draft = _draft_state(request, info, models)
    sampler = new_sampler(request.sampling)
    sampler.accept_many(np.array(request.prompt, dtype=np.int32))
    return Sequence(
        request,
        order=order,
        namespace=namespace,
        context_length=context_limit(request, info, model.pool),
        can_shift=info.can_shift,
        table=SequenceTable(model.pool),
        sampler=sampler,
        text=TextStream(table, request.stop, request.stop_tokens),
        record=recorder.submitted(request.id, request.model_id, len(request.prompt)),
        draft=draft,
    )


def _draft_state(request: Request, info: ModelInfo, models: Mapping[str, Resident]) -> DraftState | None:
    """None if nothing is to be guessed, or the draft model is not there: then it goes without."""
    if request.draft_model_id is None or request.num_draft == 0:
        return None
    draft = models.get(request.draft_model_id)
    if draft is None:
        return None
    check_draft_model(draft.device_model.info, info)
    return draft.draft_model.new_state()
