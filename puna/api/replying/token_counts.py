"""How many tokens a prompt has, without loading the model: its vocabulary and its template are enough."""

from __future__ import annotations

from puna.api.context import ApiContext
from puna.api.inference import chat_prompt_request
from puna.api.requests import ChatRequest
from puna.chat.images import TOKENS_PER_IMAGE
from puna.daemon.text.opened import opened_text


async def count_chat_tokens(context: ApiContext, request: ChatRequest) -> int:
    """Of a conversation, nothing of which is left out. Raises what puna.api.errors has a status for."""
    model, prompt_request = await chat_prompt_request(context, request)
    async with opened_text(context.runtime.opener, context.runtime.text, model) as text:
        (prompt,) = await context.runtime.text.build_prompts(text, prompt_request)
    return len(prompt.tokens) + TOKENS_PER_IMAGE * (len(prompt.cut.images) if prompt.cut else 0)
