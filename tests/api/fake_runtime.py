"""A runtime whose models say what a test tells them to; store, tokenizer and chat template are real."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from puna.backends.base import KvGroup, ModelInfo, ModelSource
from puna.config.settings import Settings
from puna.daemon.converting import Converter
from puna.daemon.opening import ModelOpener
from puna.daemon.runtime import LoadedStatus, Observation, ResidentModel
from puna.daemon.sessions import SessionManager
from puna.daemon.text.model import TextModel
from puna.daemon.worker.restarting_child import ProcessStatus
from puna.engine.observation.stats import ModelStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.request import Request, RequestStats, StepOutput, TokenLogprob
from puna.gguf.pooling import Pooling
from puna.registry import ModelName, Store, StoredModel
from puna.tokenizer import Tokenizer
from puna.worker.cage import CageLevel
from puna.worker.call_client import RUNNER_STOPPED, WorkerDied
from puna.worker.engine.messages import TrimKv
from tests.daemon.fake_sessions import FakeSessions
from tests.daemon.fake_text import FakeTextPool


@dataclass
class Script:
    """What happens to a prompt: pieces of text, one token each, and how it ends."""

    pieces: list[str] = field(default_factory=lambda: ["Hel", "lo"])
    reason: str = "stop"
    stop_string: str = ""
    engine_error: str | None = None
    error: Exception | None = None
    """Raised behind the last piece."""
    hangs: bool = False
    """Behind the last piece, for ever."""
    logprob: float = -0.5
    """Of every token."""
    cached_tokens: int = 0
    by_seed: dict[int, Script] = field(default_factory=dict)
    """What happens instead to a request with this seed."""
    load_error: Exception | None = None
    load_hangs: bool = False


@dataclass
class Loaded:
    """A model that is resident."""

    model: StoredModel
    num_ctx: int | None
    keep_alive: float | None
    draft_model: str | None
    sees: bool


class FakeRuntime:
    """Has the interface of daemon.runtime.Runtime, as far as the HTTP faces use it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.models)
        self.opener = ModelOpener(Converter(), self.store.local)
        self.worker_sessions = FakeSessions(settings.sessions)
        self.sessions = SessionManager(
            settings.sessions, settings.state_key, self.store, self.worker_sessions, self.resident
        )
        self.worker = self
        self.script = Script()
        self.text = FakeTextPool()
        self.requests: list[Request] = []
        self.resident_models: dict[str, Loaded] = {}
        self.kv: dict[str, ModelStats] = {}
        """By name, of models of which it is known."""
        self.has_states = False
        """Whether models have recurrent layers."""
        self.pooling: Pooling = "last"
        self.embedding = array("f", [3, 0, 4, 0])
        """Of every prompt, but that the second value is its number of tokens."""
        self.scores: list[float] | None = None
        """Of every pair; None: one, its number of tokens."""
        self.num_loads = 0
        self.num_held = 0
        """Models held by a request right now."""
        self.num_generating = 0
        self.observation = Observation(stats=None, num_worker_starts=0, model_names={})
        self.engine_trace: EngineTrace | None = None
        self.trace_seconds: list[float | None] = []
        """What traces were asked for."""
        self.worker_hangs = False
        self.limits_set: list[tuple[int | None, int | None]] = []

    @asynccontextmanager
    async def resident(
        self,
        wanted: str | StoredModel,
        *,
        num_ctx: int | None = None,
        keep_alive: float | None = None,
        draft_model: str | None = None,
        num_gpu: int | None = None,  # noqa: ARG002
        sees: bool = False,
    ) -> AsyncIterator[ResidentModel]:
        model = self.store.find(ModelName.parse(wanted)) if isinstance(wanted, str) else wanted
        self.num_held += 1
        try:
            if self.script.load_hangs:
                await asyncio.Event().wait()
            if self.script.load_error:
                raise self.script.load_error
            if model.name.short not in self.resident_models:
                self.num_loads += 1
            self.resident_models[model.name.short] = Loaded(model, num_ctx, keep_alive, draft_model, sees)
            with ModelSource.open(model.model_path) as source:
                record = await self.text.inspect(source)
                text = await self.text.open_model(source)
                self.tokenizer = Tokenizer.from_descriptor(text.vocabulary)
            try:
                yield self._resident_model(model, text, record.context_length, num_ctx)
            finally:
                self.text.close_model(text)
        finally:
            self.num_held -= 1

    def _resident_model(
        self, model: StoredModel, text: TextModel, context_length: int, num_ctx: int | None
    ) -> ResidentModel:
        info = ModelInfo(
            architecture="llama",
            vocab_size=text.side.vocab_size,
            context_length=context_length,
            num_layers=1,
            groups=(KvGroup(num_layers=1, block_bytes=64, is_state=self.has_states),),
            kv_type="f16",
            weight_bytes=1,
            can_shift=True,
            hidden_size=4,
            pooling=self.pooling,
        )
        return ResidentModel(
            model=model,
            info=info,
            text=text,
            context_length=min(num_ctx or context_length, context_length),
            load_duration_ns=1,
        )

    def new_request_id(self) -> str:
        return str(len(self.requests))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[StepOutput]]:
        self.requests.append(request)
        self.num_generating += 1
        try:
            async with aclosing(self._outputs(request)) as outputs:
                yield outputs
        finally:
            self.num_generating -= 1

    async def _outputs(self, request: Request) -> AsyncGenerator[StepOutput, None]:
        if request.pooling is not None and not self.script.hangs:
            vector = self.embedding[:]
            vector[1] = len(request.prompt)
            if request.pooling == "rank":
                vector = array("f", [len(request.prompt)] if self.scores is None else self.scores)
            yield StepOutput(request_id=request.id, finish_reason="stop", embedding=vector.tobytes())
            return
        script = self.script.by_seed.get(request.sampling.seed, self.script)
        limit = len(script.pieces) if request.max_tokens is None else request.max_tokens
        pieces = script.pieces[:limit]
        for number, piece in enumerate(pieces):
            await asyncio.sleep(0)
            yield StepOutput(
                request_id=request.id,
                text=piece,
                tokens=[number],
                logprobs=self._logprobs(number, piece, request, script),
            )
        if script.hangs:
            await asyncio.Event().wait()
        if script.error:
            raise script.error
        stats = RequestStats(
            prompt_tokens=len(request.prompt),
            cached_tokens=script.cached_tokens,
            prompt_ns=1000,
            generated_tokens=len(pieces),
            generation_ns=2000,
        )
        reason = "length" if limit < len(script.pieces) else script.reason
        yield StepOutput(
            request_id=request.id,
            finish_reason=reason,
            stop_string=script.stop_string,
            error=script.engine_error,
            stats=stats,
        )

    def _logprobs(
        self, token: int, piece: str, request: Request, script: Script
    ) -> list[TokenLogprob] | None:
        count = request.sampling.num_logprobs
        if count < 0:
            return None
        others = [TokenLogprob(100 + n, -1.0 - n, b"other") for n in range(count)]
        return [TokenLogprob(token, script.logprob, piece.encode(), others)]

    async def observe(self, *, wait: bool = False) -> Observation:
        if self.worker_hangs:
            raise TimeoutError
        if wait and self.observation.stats is None:
            raise WorkerDied(RUNNER_STOPPED)
        return self.observation

    async def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> int:
        stats = self.observation.stats
        self.limits_set.append((kv_limit_bytes, memory_limit_bytes))
        stats.kv_limit_bytes = kv_limit_bytes or stats.kv_limit_bytes
        stats.memory_limit_bytes = memory_limit_bytes or stats.memory_limit_bytes
        used = sum(model.used_kv_bytes for model in stats.models) + stats.leased_bytes
        return max(used - stats.kv_limit_bytes, 0)

    async def call(self, message: TrimKv) -> int:
        """As the supervisor of a worker does."""
        assert message == TrimKv()
        return sum(model.committed_kv_bytes - model.used_kv_bytes for model in self.observation.stats.models)

    async def trace(self, seconds: float | None) -> tuple[EngineTrace | None, dict[str, str]]:
        if self.worker_hangs:
            raise TimeoutError
        self.trace_seconds.append(seconds)
        return self.engine_trace, dict(self.observation.model_names)

    async def delete(self, name: ModelName) -> None:
        self.store.delete(name)

    async def unload(self, name: str) -> None:
        model = self.store.find(ModelName.parse(name))
        self.resident_models.pop(model.name.short, None)

    def processes(self) -> list[ProcessStatus]:
        return [ProcessStatus("worker", 17, CageLevel(landlock=7, seccomp=True, is_low=False))]

    async def loaded(self) -> list[LoadedStatus]:
        statuses = [
            LoadedStatus(
                name=name,
                digest=loaded.model.digest,
                size=loaded.model.size,
                expires_at=datetime.now(UTC) + timedelta(minutes=minutes),
                context_length=loaded.num_ctx or 2048,
                config=loaded.model.config,
                engine="native",
                kv=self.kv.get(name),
            )
            for minutes, (name, loaded) in enumerate(self.resident_models.items())
        ]
        return statuses[::-1]  # last to expire first
