"""What the engine is asked for a prompt of a request."""

from __future__ import annotations

from collections.abc import Sequence

from puna.api.checks import answer_format
from puna.api.options import Options
from puna.api.replying.second_engine import for_second_engine
from puna.api.requests import InferenceRequest
from puna.chat.prompt import Prompt
from puna.daemon.runtime import ResidentModel
from puna.engine.request import Request


def engine_request(
    request_id: str,
    request: InferenceRequest,
    options: Options,
    prompt: Prompt,
    resident: ResidentModel,
    choice: int,
    images: Sequence[bytes],
) -> Request:
    """choice: its number among the replies to this prompt. images: of the whole request. ApiError (400) for
    what the model's engine cannot do.
    """
    pieces, shown = prompt.cut or ([], [])
    num_logprobs = request.top_logprobs if request.logprobs else -1
    wanted = Request(
        id=request_id,
        model_id=resident.model.weights_id,
        adapter=resident.adapter,
        prompt=prompt.tokens,
        images=[images[number] for number in shown],
        pieces=pieces,
        boundaries=prompt.boundaries,
        sampling=options.sampling(num_logprobs=num_logprobs, choice=choice),
        max_tokens=options.max_tokens(resident.context_length),
        stop_tokens=list(resident.text.end_of_generation),
        stop=options.stop,
        grammar=prompt.grammar,
        shown_tokens=prompt.shown_tokens,
        context_length=resident.context_length,
        num_threads=options.num_thread if options.num_thread > 0 else None,
        shift=request.shift,
        num_keep=prompt.num_keep,
        priority=request.priority,
        cache_prompt=request.cache_prompt,
        cache_salt=request.cache_salt,
        cache_to_disk=request.cache_to_disk,
        session=request.session,
        num_draft=options.draft_num_predict,
        draft_model_id=resident.draft_model_id,
    )
    if resident.info.engine == "native":
        return wanted
    return for_second_engine(wanted, prompt, answer_format(request.format), takes_text=resident.takes_text)
