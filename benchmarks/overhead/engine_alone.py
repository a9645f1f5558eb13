"""The engine in this process: what of a request's time and processor time is its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from benchmarks.overhead.streams import TokenCost
from puna._native import TokenTable
from puna.backends import open_device
from puna.backends.base import ModelSource
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.prompt_building import build_prompts
from puna.chat.templates.template import ChatTemplate
from puna.engine import EngineCore, Request, SamplingParams
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer

_MODEL = "model"


class EngineAlone:
    """On one thread, as the daemons that it is compared with. To be used in a `with`."""

    def __init__(self, path: Path) -> None:
        with GgufFile(path) as file:
            self._tokenizer = load_tokenizer(file.metadata)
            template = file.metadata["tokenizer.chat_template"]
        self._template = ChatTemplate.for_tokenizer(template, self._tokenizer)
        with ExitStack() as opened:
            backend = open_device("cpu", 1, "f16")
            opened.callback(backend.close)
            self._core = EngineCore(backend)
            opened.callback(self._core.close)
            with ModelSource.open(path) as source:
                self._core.load_model(_MODEL, source)
            table = TokenTable(self._tokenizer.token_table())
            self._core.set_token_table(_MODEL, table, self._tokenizer)
            self._opened = opened.pop_all()
        self._ids = map(str, itertools.count())

    def __enter__(self) -> EngineAlone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def prompt(self, request: PromptRequest) -> Prompt:
        """What a text worker makes of the request."""
        [prompt] = build_prompts(request, self._template, self._tokenizer)
        return prompt

    def first_token_s(self, prompt: Prompt, num_tokens: int) -> float:
        """From the request to the first text, in seconds; computes the rest, too."""
        start = time.perf_counter()
        self._submit(prompt, num_tokens)
        while not any(output.text for output in self._core.step()):
            pass
        took = time.perf_counter() - start
        while self._core.has_work:
            self._core.step()
        return took

    def token_cost(self, prompts: Sequence[Prompt], num_tokens: int) -> TokenCost:
        """Of replies to all of them at once, from when each has begun to when the last one has ended.

        num_tokens: of each.
        """
        silent = {self._submit(prompt, num_tokens) for prompt in prompts}
        while silent:
            silent -= {output.request_id for output in self._core.step() if output.text}
        start, cpu_s, count = time.perf_counter(), time.process_time(), 0
        while self._core.has_work:
            count += sum(bool(output.text) for output in self._core.step())
        took, cpu_s = time.perf_counter() - start, time.process_time() - cpu_s
        return TokenCost(1e6 * took / count, 1e6 * cpu_s / count)

    def _submit(self, prompt: Prompt, num_tokens: int) -> str:
        request = Request(
            id=next(self._ids),
            model_id=_MODEL,
            prompt=prompt.tokens,
            grammar=prompt.grammar,
            shown_tokens=prompt.shown_tokens,
            max_tokens=num_tokens,
            stop_tokens=sorted(self._tokenizer.end_of_generation),
            sampling=SamplingParams(temperature=0),
        )
        self._core.submit(request)
        return request.id
