"""The CPU: mapped GGUF weights, native kernels, one thread pool for all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

import puna
from puna._native import (
    Adapter,
    Arena,
    HeadState,
    NativeError,
    PoolActivity,
    Program,
    Sampler,
    SampleResult,
    ThreadPool,
    sample_batch,
)
from puna.backends.base import (
    Batch,
    BlockMemory,
    DeviceAdapter,
    DeviceHeadState,
    KvGroup,
    KvReservation,
    ModelInfo,
    ModelLoadError,
    ModelSource,
    StepResult,
    StepSuspended,
    UnsupportedModelFile,
)
from puna.backends.cpu.compiling import Compiled, compile_files, open_drafter
from puna.backends.cpu.cores import usable_cores
from puna.backends.cpu.kv_memory import CpuKvMemory, reserve_arena
from puna.gguf import GgufError, GgufFile, TensorInfo
from puna.graph import Graph, GraphError
from puna.graph.ops import Embed, Moe
from puna.models.adapters import read_alpha
from puna.models.hyperparameters import HyperparameterError
from puna.models.ranking import NoScores


class CpuModel:
    """A GGUF file and the program that runs it. The mapping of the file lives as long as the program."""

    def __init__(self, info: ModelInfo, program: Program, threads: ThreadPool) -> None:
        self.info = info
        self._program: Program | None = program
        self._threads = threads
        self._nothing_drawn = sample_batch(threads, np.zeros((0, 1), np.float32), [])

    def reserve(self, reservation: KvReservation) -> tuple[BlockMemory, ...]:
        assert self._program is not None, "reserve after close"
        try:
            arenas = [reserve_arena(group, reservation) for group in self.info.groups]
        except NativeError as error:
            raise ModelLoadError(str(error)) from error
        return tuple(
            CpuKvMemory(arena, group, self._program, self._threads) for group, arena in enumerate(arenas)
        )

    def load_adapter(self, source: ModelSource) -> Adapter:
        assert self._program is not None, "load_adapter after close"
        try:
            with GgufFile.from_descriptor(source.descriptors[0], source.name) as file:
                alpha = read_alpha(file.metadata, self.info.architecture)
                return self._program.load_adapter(file.native, alpha)
        except (GgufError, HyperparameterError, NativeError) as error:
            raise ModelLoadError(_with_name(source.name, error)) from error

    def step(self, batch: Batch, kv: Sequence[BlockMemory], samplers: Sequence[Sampler]) -> StepResult:
        assert self._program is not None, "step after close"
        logits, hidden = self._run(batch, kv)
        num_rows, num_hidden = len(batch.rows), 0 if batch.hidden is None else len(batch.hidden)
        result = self._nothing_drawn
        if num_rows:
            result = sample_batch(
                self._threads, logits, samplers, batch.drafts, batch.draft_starts, masks=batch.masks
            )
        if batch.drafts is not None and self.info.state_bytes:
            self._program.replay(self._threads, _arenas(kv)[-1], result.starts)
        wanted = hidden[num_rows : num_rows + num_hidden]
        if not batch.heads:
            return StepResult(result, wanted)
        wanted = wanted.copy()  # its memory is about to be used
        self._keep(batch, kv, hidden, result)
        return StepResult(result, wanted)

    @property
    def buffer_bytes(self) -> int:
        """Memory that its steps have taken so far, beside weights and KV."""
        assert self._program is not None, "buffer_bytes after close"
        return self._program.buffer_bytes

    def text_bytes(self, num_tokens: int, num_texts: int) -> int:
        assert self._program is not None, "text_bytes after close"
        return self._program.text_bytes(num_tokens, num_texts, self._threads.num_threads)

    def new_head_state(self) -> HeadState:
        return HeadState()

    def predict(self, batch: Batch, kv: Sequence[BlockMemory], counts: Sequence[int]) -> list[list[int]]:
        assert self._program is not None, "predict after close"
        return self._program.predict(
            self._threads,
            _arenas(kv),
            batch.tokens,
            batch.positions,
            batch.sequence_starts,
            batch.block_tables,
            batch.num_threads,
            _head_states(batch.heads),
            counts,
        )

    def logits(self, batch: Batch, kv: Sequence[BlockMemory]) -> NDArray[np.float32]:
        """[R, vocab_size], valid until the next step; states as if no draft turned out right. Raises
        NativeError, as step().
        """
        return self._run(batch, kv)[0]

    def _run(
        self, batch: Batch, kv: Sequence[BlockMemory]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        assert self._program is not None, "step after close"
        outputs = self._program.run(
            self._threads,
            _arenas(kv),
            batch.tokens,
            batch.positions,
            batch.sequence_starts,
            batch.block_tables,
            batch.rows,
            batch.num_threads,
            batch.control,
            batch.draft_starts,
            batch.hidden,
            _adapters(batch.adapters),
            _head_states(batch.heads),
            batch.goes_on,
        )
        if outputs is None:
            raise StepSuspended
        return outputs

    def _keep(
        self, batch: Batch, kv: Sequence[BlockMemory], hidden: NDArray[np.float32], result: SampleResult
    ) -> None:
        """What the prediction head has of the step's tokens. hidden: of all that it needs."""
        assert self._program is not None
        self._program.keep(
            self._threads,
            _arenas(kv),
            batch.tokens,
            batch.positions,
            batch.sequence_starts,
            batch.block_tables,
            batch.rows,
            batch.num_threads,
            batch.draft_starts,
            batch.hidden,
            _head_states(batch.heads),
            hidden,
            result.starts,
        )

    def sleep(self) -> None:
        """The weights stay in the system's page cache, until it has another use for that memory.

        Nothing is brought back ahead of the next run: its threads do that as fast as the system would.
        """
        assert self._program is not None, "sleep after close"
        self._program.release_memory()

    def close(self) -> None:
        self._program = None


class CpuBackend:
    """num_threads: None: see usable_cores(). isa, kv_type: as in ProgramBuilder."""

    def __init__(self, num_threads: int | None = None, isa: str = "auto", kv_type: str = "f16") -> None:
        self.threads = ThreadPool(num_threads or usable_cores())
        self._isa = isa
        self._kv_type = kv_type

    def load(self, source: ModelSource) -> CpuModel:
        """Raises ModelLoadError."""
        header, *others = source.descriptors
        try:
            with ExitStack() as stack:
                file = stack.enter_context(GgufFile.from_descriptor(header, source.name, others))
                drafter = open_drafter(source)
                if drafter is not None:
                    stack.enter_context(drafter)
                compiled = self._compile(file, drafter, source.name)
                info = _describe(compiled, self._kv_type, self.threads.num_threads)
                return CpuModel(info, compiled.program, self.threads)
        except (GgufError, NativeError) as error:
            raise ModelLoadError(_with_name(source.name, error)) from error

    def _compile(self, file: GgufFile, drafter: GgufFile | None, name: str) -> Compiled:
        """Raises UnsupportedModelFile, ModelLoadError, GgufError."""
        try:
            return compile_files(file, drafter, self._isa, self._kv_type)
        except NoScores as error:
            raise ModelLoadError(_with_name(name, error)) from error
        except (HyperparameterError, GraphError, NativeError) as error:
            raise UnsupportedModelFile(_with_name(name, error)) from error

    def activity(self) -> PoolActivity:
        return self.threads.activity()

    def close(self) -> None:
        self.threads.close()


def _arenas(kv: Sequence[BlockMemory]) -> list[Arena]:
    return [memory.arena for memory in kv if isinstance(memory, CpuKvMemory)]


def _adapters(adapters: Sequence[DeviceAdapter | None]) -> list[Adapter | None]:
    return [adapter if isinstance(adapter, Adapter) else None for adapter in adapters]


def _head_states(heads: Sequence[DeviceHeadState | None]) -> list[HeadState | None]:
    return [state if isinstance(state, HeadState) else None for state in heads]


def _describe(compiled: Compiled, kv_type: str, num_threads: int) -> ModelInfo:
    traced, program, tensors, has_drafter = compiled
    graphs = [traced.graph] if traced.prediction is None else [traced.graph, traced.prediction]
    return ModelInfo(
        architecture=traced.architecture,
        vocab_size=traced.vocab_size,
        context_length=traced.context_length,
        num_layers=traced.num_layers,
        groups=tuple(
            KvGroup(
                num_layers=g.num_layers,
                block_bytes=g.block_bytes,
                window=g.window or None,
                is_state=g.is_state,
            )
            for g in program.groups
        ),
        kv_type=kv_type,
        weight_bytes=_weight_bytes(tensors, graphs),
        idle_weight_bytes=sum(_idle_weight_bytes(tensors, graph) for graph in graphs),
        can_shift=program.can_shift,
        hidden_size=0 if traced.graph.hidden is None else traced.graph.hidden.width,
        pooling=traced.pooling,
        predicts=traced.prediction is not None,
        has_drafter=has_drafter,
        is_encoder=traced.graph.is_encoder,
        scratch_bytes=program.most_scratch_bytes(traced.context_length, num_threads),
        kernels=f"{puna.__version__} {program.isa}",
    )


def _weight_bytes(tensors: Mapping[str, TensorInfo], graphs: Sequence[Graph]) -> int:
    """But for tables of which only the rows of tokens that occur are ever read."""
    nodes = [node for graph in graphs for node in graph.nodes]
    tables = {name for node in nodes if isinstance(node.op, Embed) for name in node.tensors}
    read = {name for node in nodes if not isinstance(node.op, Embed) for name in node.tensors}
    return sum(tensor.num_bytes for name, tensor in tensors.items() if name not in tables - read)


def _idle_weight_bytes(tensors: Mapping[str, TensorInfo], graph: Graph) -> int:
    idle = 0
    for node in graph.nodes:
        if isinstance(node.op, Moe):
            num_experts = node.inputs[1].width
            for name in node.op.matrices(node.tensors):
                tensor = tensors[name]
                idle += tensor.num_bytes // num_experts * (num_experts - node.op.num_used)
    return idle


def _with_name(name: str, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(name) else f"{name}: {text}"
