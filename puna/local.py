"""The engine in the calling process, step by step."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from puna._native import TokenTable
from puna.backends import open_device
from puna.backends.base import ModelInfo, ModelSource
from puna.chat.errors import TemplateError
from puna.chat.templates.choice import AnyTemplate, choose
from puna.chat.templates.model_templates import ModelTemplates
from puna.engine import (
    EngineCore,
    EngineSettings,
    FinishReason,
    Request,
    RequestStats,
    SamplingParams,
    StepOutput,
    TokenLogprob,
)
from puna.engine.request import GenerationError
from puna.gguf import GgufFile
from puna.gguf.pooling import Pooling
from puna.registry import ModelName, Store, UnsupportedModel
from puna.registry.local.local_directory import HeadedModel
from puna.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)

_MODEL_ID, _ADAPTER_ID = "model", "adapter"


@dataclass(frozen=True, slots=True)
class Completion:
    """How a prompt was continued."""

    text: str
    tokens: list[int]
    """Those whose text begins in `text`."""
    finish_reason: FinishReason
    stats: RequestStats
    logprobs: list[TokenLogprob] | None = None
    """One per token, if the sampling parameters ask for them."""


class Engine:
    """Continuous batching by hand: add requests at any time, step, read.

    model: a GGUF file, or the name of a model in the store.
    Not thread-safe. Close it, or use it in a `with`, to give its memory back.
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
        """kv_limit_bytes: of all sequences together; by default a share of the available memory.
        kv_type: what keys and values are stored as: f16, q8_0, q4_0 or f32.
        context_length: longest prompt and answer together, in tokens; by default the model's own limit.
        adapter: GGUF file of a LoRA adapter for the model; by default the one that a model in the store has.

        Raises what the registry raises for a name, GgufError, TokenizerError, ModelLoadError for a file.
        """
        path, templates, own_adapter = find_model(model)
        with GgufFile(path) as file:
            self.tokenizer: Tokenizer = load_tokenizer(file.metadata)
            self.chat_template = _chat_template(file, self.tokenizer, templates)
        self._context_length = context_length
        self._adapter = ""
        self._sequences: dict[int, _Sequence] = {}
        self._next_id = itertools.count()
        self._backend = open_device("cpu", num_threads, kv_type)
        self._core = EngineCore(self._backend, EngineSettings(kv_limit_bytes=kv_limit_bytes))
        try:
            with ModelSource.open(path) as source:
                self.info: ModelInfo = self._core.load_model(_MODEL_ID, source)
            if adapter_path := adapter or own_adapter:
                with ModelSource.open(Path(adapter_path)) as source:
                    self._core.adapters.load(_MODEL_ID, _ADAPTER_ID, source)
                self._adapter = _ADAPTER_ID
            table = TokenTable(self.tokenizer.token_table())
            self._core.set_token_table(_MODEL_ID, table, self.tokenizer)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all sequences and gives all memory back."""
        self._core.close()
        self._backend.close()

    @property
    def context_length(self) -> int:
        """Longest prompt and answer together, in tokens."""
        return min(self._context_length or self.info.context_length, self.info.context_length)

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do."""
        return self._core.has_work

    def add_request(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams | None = None,
        shift: bool = False,
        num_keep: int = 0,
        priority: int = 0,
        cache_salt: str = "",
        boundaries: Sequence[int] = (),
        grammar: str = "",
        pooling: Pooling | None = None,
    ) -> int:
        """Queues a prompt, as text or tokens, and returns its sequence id.

        The answer ends at one of the model's stop tokens, before one of the `stop` strings, after
        `max_new_tokens`, or at the end of the context.

        shift: goes on at the end of the context, without the older half of what follows the first `num_keep`
            tokens; give `max_new_tokens` or a stop string then.
        priority: each step counts as having come a minute earlier.
        cache_salt: what was computed is used again only by prompts with the same one.
        boundaries: positions in the prompt, ascending, where later ones are likely to part from it: there,
            the state of recurrent layers is kept.
        grammar: what the answer may be, in llguidance's Lark: `start: %json {...}` for a JSON Schema.
        pooling: there is no answer, but an embedding: see embedding().
        """
        seq_id = next(self._next_id)
        self._sequences[seq_id] = _Sequence()
        self._core.submit(
            Request(
                id=str(seq_id),
                model_id=_MODEL_ID,
                adapter=self._adapter,
                prompt=self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt),
                sampling=sampling or SamplingParams(),
                max_tokens=max_new_tokens,
                stop_tokens=sorted(self.tokenizer.end_of_generation),
                stop=list(stop),
                context_length=self._context_length,
                shift=shift,
                num_keep=num_keep,
                priority=priority,
                cache_salt=cache_salt,
                boundaries=list(boundaries),
                grammar=grammar,
                pooling=pooling,
            )
        )
        return seq_id

    def step(self) -> tuple[list[int], list[int]]:
        """Moves the batch on; returns the sequences that got a token, and their tokens.

        A step may bring no token: while it works on a long prompt, where a sequence just ends, or where what
        was drawn may be part of a stop string or has half a character.
        """
        seq_ids, next_token_ids = [], []
        for output in self._core.step():
            seq_id = int(output.request_id)
            sequence = self._sequences.get(seq_id)
            if sequence is None:  # removed
                continue
            sequence.add(output)
            seq_ids += [seq_id] * len(output.tokens)
            next_token_ids += output.tokens
        if not self._core.has_work:
            self._core.trim()
        return seq_ids, next_token_ids

    def get_sequence_text(self, seq_id: int) -> str:
        """The answer so far. It can be read until remove(). Raises GenerationError if it failed."""
        sequence = self._sequences[seq_id]
        sequence.check()
        return sequence.text

    def completion(self, seq_id: int) -> Completion | None:
        """The whole answer; None while it is incomplete. Raises GenerationError if it failed."""
        sequence = self._sequences[seq_id]
        sequence.check()
        return sequence.completion()

    def embedding(self, seq_id: int) -> NDArray[np.float32] | None:
        """[hidden_size] of a prompt that was queued with `pooling`, as the model gives it; None while it is
        incomplete. Raises GenerationError if it failed.
        """
        sequence = self._sequences[seq_id]
        sequence.check()
        return None if sequence.embedding is None else np.frombuffer(sequence.embedding, np.float32)

    def remove(self, seq_id: int) -> None:
        """Forgets a sequence; one that is not finished is cancelled, and its memory is free at once."""
        del self._sequences[seq_id]
        self._core.cancel(str(seq_id))


def find_model(model: str | Path) -> tuple[Path, ModelTemplates, Path | None]:
    """The GGUF file of a path or of a name in the store, what the store knows of its prompts, and its
    adapter's file. Raises the registry's errors.
    """
    if isinstance(model, Path) or model.endswith(".gguf"):
        return Path(model), ModelTemplates(), None
    stored = Store.default().find(ModelName.parse(model))
    stored.check_loadable()
    config = stored.config
    if isinstance(stored, HeadedModel):
        raise UnsupportedModel(f"{stored.name.short} is in several files: the daemon runs it")
    templates = ModelTemplates(
        go=stored.template or "",
        renderer=config.renderer or "",
        parser=config.parser or "",
        family=config.family,
    )
    return stored.model_path, templates, stored.adapter_path


def _chat_template(file: GgufFile, tokenizer: Tokenizer, templates: ModelTemplates) -> AnyTemplate | None:
    """None also for one that cannot be used: text can be generated without it."""
    try:
        return choose(file.metadata.get("tokenizer.chat_template"), templates).compiled(tokenizer)
    except TemplateError as error:
        log.warning("%s: the chat template cannot be used: %s", file.name, error)
        return None


class _Sequence:
    """What came back of one request."""

    def __init__(self) -> None:
        self.text = ""
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] | None = None
        self._last: StepOutput | None = None

    @property
    def embedding(self) -> bytes | None:
        return None if self._last is None else self._last.embedding

    def add(self, output: StepOutput) -> None:
        self.text += output.text
        self._tokens += output.tokens
        if output.logprobs:
            self._logprobs = (self._logprobs or []) + output.logprobs
        if output.finish_reason is not None:
            self._last = output

    def check(self) -> None:
        if self._last is not None and self._last.finish_reason == "error":
            raise GenerationError(self._last.error)

    def completion(self) -> Completion | None:
        if self._last is None:
            return None
        reason, stats = self._last.finish_reason, self._last.stats
        assert reason is not None
        assert stats is not None
        return Completion(self.text, self._tokens, reason, stats, self._logprobs)
