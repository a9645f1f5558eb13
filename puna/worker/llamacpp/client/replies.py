"""Replies and embeddings of a server's model."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from puna.engine.request import Request, RequestStats, StepOutput
from puna.worker.llamacpp.client.completions import Reply, completion, with_images
from puna.worker.llamacpp.client.http import ServerClient, ServerError

log = logging.getLogger(__name__)


class _Tokens(msgspec.Struct, frozen=True):
    """Of POST /tokenize."""

    tokens: list[int]


class _Text(msgspec.Struct, frozen=True):
    """Of POST /detokenize."""

    content: str


class _Embedding(msgspec.Struct, frozen=True):
    """Of POST /embedding: [1, hidden_size]."""

    embedding: list[list[float]]


class ServedModel:
    """A model that a server has loaded.

    context_length: of a request, in tokens. bos_id: None: the vocabulary has none. marker: what stands for an
    image in a prompt; "": the model does not see.
    """

    def __init__(
        self, client: ServerClient, context_length: int, bos_id: int | None, marker: str = ""
    ) -> None:
        self.context_length = context_length
        self._client = client
        self._bos_id = bos_id
        self._marker = marker
        self._shown_texts: dict[int, str] = {}

    async def outputs(self, request: Request, may_go_on: asyncio.Event) -> AsyncGenerator[StepOutput, None]:
        """Until one has a finish_reason, whatever happens. While may_go_on is not set, nothing is read."""
        most = min(request.context_length or self.context_length, self.context_length)
        reply = Reply(request, most)
        try:
            if request.pooling is not None:
                yield await self._embedding(request)
                return
            async with aclosing(self._generated(request, reply, most)) as outputs:
                async for output in outputs:
                    yield output
                    await may_go_on.wait()
        except ServerError as error:
            yield reply.failed(str(error), is_refused=error.is_refused)
        except Exception as error:
            log.exception("a request failed")
            yield reply.failed(repr(error), is_refused=False)

    async def _generated(self, request: Request, reply: Reply, most: int) -> AsyncGenerator[StepOutput, None]:
        """most: tokens of prompt and reply."""
        if request.images and not self._marker:
            raise ServerError("the model was loaded without its projector")
        prompt = await self._tokens(request)
        if (room := most - len(prompt)) <= 0:
            text = f"the prompt has {len(prompt)} tokens, the context {most}"
            raise ServerError(text, is_refused=True)
        shown = [await self._shown(token) for token in request.shown_tokens]
        max_tokens = room if request.max_tokens is None else min(request.max_tokens, room)
        body = completion(request, prompt, shown, max_tokens)
        if request.images:
            body |= with_images(request, self._marker)
        async with aclosing(self._client.complete(body)) as chunks:
            async for chunk in chunks:
                if (output := reply.add(chunk)) is not None:
                    yield output
                    if output.finish_reason is not None:
                        return
        raise ServerError("a reply has no end")

    async def _tokens(self, request: Request) -> list[int]:
        """Of the prompt: a text becomes tokens as the server has it, but never begins with BOS twice."""
        if not request.text:
            return request.prompt
        body = {"content": request.text, "add_special": True, "parse_special": True}
        tokens: list[int] = (await self._client.post("/tokenize", body, _Tokens)).tokens
        return tokens[1:] if tokens[:2] == [self._bos_id, self._bos_id] else tokens

    async def _shown(self, token: int) -> str:
        """A control token's text."""
        if token not in self._shown_texts:
            found = await self._client.post("/detokenize", {"tokens": [token]}, _Text)
            self._shown_texts[token] = found.content
        return self._shown_texts[token]

    async def _embedding(self, request: Request) -> StepOutput:
        prompt = await self._tokens(request)
        body = {"content": prompt, "embd_normalize": -1}
        (found,) = await self._client.post("/embedding", body, tuple[_Embedding])
        (vector,) = found.embedding
        stats = RequestStats(
            prompt_tokens=len(prompt), cached_tokens=0, prompt_ns=0, generated_tokens=0, generation_ns=0
        )
        embedding = array("f", vector).tobytes()
        return StepOutput(request_id=request.id, embedding=embedding, finish_reason="stop", stats=stats)
