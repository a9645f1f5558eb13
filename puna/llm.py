"""Text in, text out, in the calling process, without a daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.chat.embedding_inputs import InputsRequest, encode_inputs
from puna.chat.messages import Message
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.prompt_building import build_prompts
from puna.engine.request import GenerationError, SamplingParams
from puna.gguf.pooling import Pooling
from puna.local import Completion, Engine


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some more text of a stream; the last one has `completion`, the whole."""

    text: str
    completion: Completion | None = None


class LLM:
    """Text in, text out. The arguments are those of Engine.

    All prompts that are given together run together. Not thread-safe, but streams may be interleaved.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        num_threads: int | None = None,
        kv_limit_bytes: int | None = None,
        kv_type: str = "f16",
        context_length: int | None = None,
        adapter: str | Path | None = None,
    ) -> None:
        self.engine = Engine(
            model,
            num_threads=num_threads,
            kv_limit_bytes=kv_limit_bytes,
            kv_type=kv_type,
            context_length=context_length,
            adapter=adapter,
        )

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.engine.close()

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams | None = None,
        grammar: str = "",
    ) -> list[Completion]:
        """One completion per prompt, in their order. Raises GenerationError if one of them fails.

        grammar: see Engine.add_request().
        """
        prompts = [prompts] if isinstance(prompts, str) else prompts
        seq_ids = [
            self.engine.add_request(
                prompt, max_new_tokens=max_tokens, stop=stop, sampling=sampling, grammar=grammar
            )
            for prompt in prompts
        ]
        try:
            return [self._finish(seq_id) for seq_id in seq_ids]
        finally:
            for seq_id in seq_ids:
                self.engine.remove(seq_id)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams | None = None,
        grammar: str = "",
        boundaries: Sequence[int] = (),
    ) -> Iterator[Chunk]:
        """The completion of one prompt as it comes. Closing the iterator cancels the request.

        grammar, boundaries: see Engine.add_request().
        """
        engine = self.engine
        seq_id = engine.add_request(
            prompt,
            max_new_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
            grammar=grammar,
            boundaries=boundaries,
        )
        num_sent = 0
        try:
            while (completion := engine.completion(seq_id)) is None:
                if text := engine.get_sequence_text(seq_id)[num_sent:]:
                    num_sent += len(text)
                    yield Chunk(text)
                else:
                    engine.step()
            yield Chunk(completion.text[num_sent:], completion)
        finally:
            engine.remove(seq_id)

    def chat(
        self,
        messages: Sequence[Message | Mapping[str, object]],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams | None = None,
        grammar: str = "",
    ) -> Completion:
        """The assistant's reply, by the model's own chat template. Raises GenerationError, TemplateError,
        PromptError."""
        *_, last = self.stream_chat(
            messages, max_tokens=max_tokens, stop=stop, sampling=sampling, grammar=grammar
        )
        assert last.completion is not None
        return last.completion

    def stream_chat(
        self,
        messages: Sequence[Message | Mapping[str, object]],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams | None = None,
        grammar: str = "",
    ) -> Iterator[Chunk]:
        """The same as it comes."""
        prompt = self._chat_prompt(messages)
        return self.stream(
            prompt.tokens,
            max_tokens=max_tokens,
            stop=stop,
            sampling=sampling,
            grammar=grammar,
            boundaries=prompt.boundaries,
        )

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        truncate: bool = True,
        pooling: Pooling | None = None,
        normalized: bool = True,
    ) -> NDArray[np.float32]:
        """[number of texts, hidden_size] in their order.

        truncate: leaves out the end of a text that does not fit the context. pooling: by default the model's
        own. normalized: to length 1.
        Raises PromptError for a text that cannot be embedded, GenerationError if the model has no embeddings.
        """
        engine = self.engine
        pooling = pooling or engine.info.pooling
        if pooling == "rank":
            raise GenerationError("the model has no embeddings: it ranks texts")
        request = InputsRequest(
            texts=[texts] if isinstance(texts, str) else list(texts),
            context_length=engine.context_length,
            truncate=truncate,
        )
        inputs = encode_inputs(request, engine.tokenizer)
        seq_ids = [engine.add_request(tokens, pooling=pooling) for tokens in inputs]
        try:
            vectors = [self._finish_embedding(seq_id) for seq_id in seq_ids]
        finally:
            for seq_id in seq_ids:
                engine.remove(seq_id)
        found = np.array(vectors, np.float32).reshape(len(vectors), engine.info.hidden_size)
        if normalized:
            lengths = np.linalg.norm(found, axis=1, keepdims=True)
            np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    def _finish_embedding(self, seq_id: int) -> NDArray[np.float32]:
        while (vector := self.engine.embedding(seq_id)) is None:
            self.engine.step()
        return vector

    def _finish(self, seq_id: int) -> Completion:
        while (completion := self.engine.completion(seq_id)) is None:
            self.engine.step()
        return completion

    def _chat_prompt(self, messages: Sequence[Message | Mapping[str, object]]) -> Prompt:
        engine = self.engine
        if engine.chat_template is None:
            raise GenerationError("the model has no chat template that can be used")
        request = PromptRequest(
            messages=msgspec.convert([_builtins(message) for message in messages], list[Message]),
            context_length=engine.info.context_length,
            truncate=False,
            with_boundaries=engine.info.state_bytes > 0,
        )
        (prompt,) = build_prompts(request, engine.chat_template, engine.tokenizer)
        return prompt


def _builtins(message: Message | Mapping[str, object]) -> object:
    return msgspec.to_builtins(message) if isinstance(message, Message) else dict(message)
