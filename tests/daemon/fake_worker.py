"""A worker without a process: models are names, answers are scripted, death is a method call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from puna.backends.base import KvGroup, ModelInfo, ModelLoadError
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.observation.stats import EngineStats, ModelStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.request import Request, RequestStats, StepOutput
from puna.kv.budget import Shortage
from puna.worker.cage import CageLevel
from puna.worker.call_client import WorkerDied
from puna.worker.engine.messages import (
    EndLease,
    EraseModel,
    GetStats,
    GetTrace,
    Hold,
    Lease,
    Leased,
    Load,
    LoadAdapter,
    Ready,
    SavePrefixes,
    SessionMessage,
    SetLimits,
    SetVocabulary,
    Sleep,
    TrimKv,
    Unload,
    UnloadAdapter,
    Wake,
)
from puna.worker.llamacpp.messages import ServerSettings
from tests.daemon.fake_sessions import FakeSessions

INFO = ModelInfo(
    architecture="toy",
    vocab_size=512,
    context_length=2048,
    num_layers=1,
    groups=(KvGroup(num_layers=1, block_bytes=64),),
    kv_type="f16",
    weight_bytes=1000,
    can_shift=True,
)
SERVED = replace(INFO, engine="llamacpp", groups=(), scratch_bytes=300, idle_weight_bytes=200)
ADAPTER_BYTES = 100
STEP_S = 0.01
LEASABLE = 1000
USED_BYTES, CACHED_BYTES, COMMITTED_BYTES = 64, 128, 256


class FakeWorker(FakeSessions):
    """Process and client in one. Each request gets the tokens of its prompt back, one per step."""

    def __init__(
        self, pid: int, unloadable: set[str], deadly: set[str], memory_bytes: int, sessions: Path
    ) -> None:
        super().__init__(sessions)
        self._memory_bytes = memory_bytes
        self.pid = pid
        self.client = self
        cage = CageLevel(landlock=7, seccomp=True, is_low=False)
        self.ready = Ready(kv_limit_bytes=0, memory_limit_bytes=memory_bytes, cage=cage)
        self.info = INFO
        """Of all models."""
        self.refusal: type[ModelLoadError] = ModelLoadError
        """Of those that cannot be loaded."""
        self.models: dict[str, Path] = {}
        self.adapters: set[tuple[str, str]] = set()
        """Ids of models and of adapters."""
        self.vocabularies: set[str] = set()
        """Of models."""
        self.shares: dict[str, float] = {}
        self.guarantees: dict[str, int] = {}
        self.seeing: set[str] = set()
        """Models with a projector."""
        self.held: dict[str, bool] = {}
        """Of models that were loaded."""
        self.limits: tuple[int | None, int | None] = None, None
        self.leased_bytes = self.leased_weight_bytes = 0
        self.asleep: dict[str, Path] = {}
        self.kv_limit_bytes = 0
        self.kv_excess_bytes = 0
        """That running requests hold."""
        self.needs: dict[str, int] = {}
        """Bytes of weights, where they are not those of INFO."""
        self.requests: list[Request] = []
        self.cancelled: list[str] = []
        self.terminated = False
        self.num_saves = 0
        self.erased: list[str] = []
        self.save_s = 0.0
        self._unloadable = unloadable
        self._deadly = deadly
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._cancels: set[str] = set()

    def die(self, status: int = -9) -> None:
        if not self._end.done():
            self._end.set_result(status)

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def terminate(self) -> None:
        self.terminated = True
        self.die(0)

    async def call(self, message: Any, descriptors: Sequence[int] = ()) -> Any:
        """Takes a moment, as messages do."""
        if not isinstance(message, SetLimits | Lease | EndLease | SessionMessage):
            await self._step()
        match message:
            case Load():
                return self._load(message, descriptors)
            case LoadAdapter(model_id, adapter_id, name):
                if model_id not in self.models or os.pread(descriptors[0], 4, 0) != b"LoRA":
                    raise ModelLoadError(f"{name}: the file is no LoRA adapter")
                taken = len(self.models) * INFO.weight_bytes + len(self.adapters) * ADAPTER_BYTES
                if taken + ADAPTER_BYTES > self._memory_bytes:
                    raise ModelDoesNotFit(str(Shortage(ADAPTER_BYTES, self._memory_bytes, taken)))
                self.adapters.add((model_id, adapter_id))
                return ADAPTER_BYTES
            case UnloadAdapter(model_id, adapter_id):
                self.adapters.discard((model_id, adapter_id))
            case SetVocabulary(model_id):
                for descriptor in descriptors:
                    os.fstat(descriptor)
                self.vocabularies.add(model_id)
            case Unload(model_id):
                self.vocabularies.discard(model_id)
                self.adapters = {known for known in self.adapters if known[0] != model_id}
                self.models.pop(model_id, None)
                self.asleep.pop(model_id, None)
            case Sleep(model_id):
                self.asleep[model_id] = self.models.pop(model_id)
            case Wake(model_id):
                self._check_fit(model_id)
                self.held[model_id] = True
                self.models[model_id] = self.asleep.pop(model_id)
                return INFO
            case GetStats():
                return self._stats()
            case GetTrace(seconds):
                return EngineTrace(self.pid, 0, int((seconds or 0) * 1e9), [], [])
            case SetLimits(kv_limit_bytes, memory_limit_bytes):
                self.limits = kv_limit_bytes, memory_limit_bytes
                self._memory_bytes = memory_limit_bytes or self._memory_bytes
                await self._step()
                return max(len(self.models) * INFO.weight_bytes - self._memory_bytes, self.kv_excess_bytes)
            case Lease(num_bytes, is_held, weight_bytes):
                leasable = min(LEASABLE, self._memory_bytes - len(self.models) * INFO.weight_bytes)
                granted = is_held or self.leased_bytes + num_bytes <= leasable
                self.leased_bytes += num_bytes * granted
                self.leased_weight_bytes += weight_bytes * granted
                await self._step()
                return Leased(granted, leasable - self.leased_bytes)
            case EndLease(num_bytes, weight_bytes):
                self.leased_bytes -= num_bytes
                self.leased_weight_bytes -= weight_bytes
                assert self.leased_bytes >= 0 <= self.leased_weight_bytes
                await self._step()
            case TrimKv():
                return 0
            case EraseModel(model_id):
                self.erased.append(model_id)
            case SavePrefixes():
                await asyncio.sleep(self.save_s)
                self._check()
                self.num_saves += 1
            case _:
                return self.handle_session(message)
        return None

    def tell(self, message: Hold) -> None:
        self._check()
        self.held[message.model_id] = message.is_held

    def cancel(self, request_id: str) -> None:
        self._check()
        self._cancels.add(request_id)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StepOutput], None]:
        async with aclosing(self._generate(request)) as outputs:
            yield outputs

    def _load(self, message: Load, descriptors: Sequence[int]) -> ModelInfo:
        model_id = message.model_id
        if model_id in self._deadly:
            self.die()
        self._check()
        for descriptor in descriptors:
            os.fstat(descriptor)  # open
        if model_id in self._unloadable:
            raise self.refusal(f"{message.name} is broken")
        self._check_fit(model_id)
        self.models[model_id] = Path(message.name)
        self.held[model_id] = True
        self.seeing |= {model_id} if message.sees else set()
        self.shares[model_id] = message.share
        self.guarantees[model_id] = message.guaranteed_kv_bytes
        return self.info

    def _stats(self) -> EngineStats:
        return EngineStats(
            kv_limit_bytes=self.kv_limit_bytes,
            memory_limit_bytes=self._memory_bytes,
            leased_bytes=self.leased_bytes,
            models=[
                ModelStats(
                    model_id, 0, 0, 0, 64, USED_BYTES, CACHED_BYTES, COMMITTED_BYTES, weight_bytes=1000
                )
                for model_id in self.models
            ],
        )

    async def _generate(self, request: Request) -> AsyncGenerator[StepOutput, None]:
        finished = False
        try:
            self._check()
            assert request.model_id in self.models
            self.requests.append(request)
            for number, token in enumerate(request.prompt):
                await self._step()
                if request.id in self._cancels:
                    finished = True
                    yield self._finish(request, number, "cancelled")
                    return
                yield StepOutput(request_id=request.id, tokens=[token])
            finished = True
            yield self._finish(request, len(request.prompt), "stop")
        finally:
            if not finished:
                self.cancelled.append(request.id)

    def _finish(self, request: Request, num_tokens: int, reason) -> StepOutput:
        stats = RequestStats(len(request.prompt), 0, 1000, num_tokens, 2000)
        return StepOutput(request_id=request.id, finish_reason=reason, stats=stats)

    async def _step(self) -> None:
        self._check()
        await asyncio.wait([self._end], timeout=STEP_S)
        self._check()

    def _check_fit(self, model_id: str) -> None:
        taken, needed = len(self.models) * INFO.weight_bytes, self.needs.get(model_id, INFO.weight_bytes)
        if taken + needed > self._memory_bytes:
            raise ModelDoesNotFit(Shortage(needed, self._memory_bytes, taken))

    def _check(self) -> None:
        if self._end.done():
            raise WorkerDied


class Workshop:
    """Spawns fake workers."""

    def __init__(self, start_s: float = 0.5, sessions: Path = Path("nowhere")) -> None:
        self.workers: list[FakeWorker] = []
        self.spawn_times: list[float] = []
        self.unloadable: set[str] = set()
        self.deadly: set[str] = set()
        self.memory_bytes = 1 << 60
        """For weights, of later workers."""
        self.failures: list[Exception] = []
        """Raised by the next spawns."""
        self._start_s = start_s
        self._sessions = sessions

    @property
    def worker(self) -> FakeWorker:
        return self.workers[-1]

    async def spawn(self) -> FakeWorker:
        self.spawn_times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._start_s)
        if self.failures:
            raise self.failures.pop(0)
        pid = 100 + len(self.workers)
        worker = FakeWorker(pid, self.unloadable, self.deadly, self.memory_bytes, self._sessions)
        self.workers.append(worker)
        return self.worker


class Servers(Workshop):
    """Spawns what stands for llama.cpp's servers."""

    def __init__(self) -> None:
        super().__init__(start_s=0.0)
        self.settings: list[ServerSettings] = []
        self.info = SERVED
        self.refusal: type[ModelLoadError] = ModelLoadError

    async def spawn_with(self, settings: ServerSettings) -> FakeWorker:
        self.settings.append(settings)
        worker = await self.spawn()
        context_length = min(settings.context_length, self.info.most_context or settings.context_length)
        worker.info = replace(self.info, context_length=context_length)
        worker.refusal = self.refusal
        return worker
