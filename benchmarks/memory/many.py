"""Five models under a limit of a quarter of what their KV would take at a fixed size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from benchmarks.figures import Row, Target, mebibytes, seconds
from benchmarks.memory.daemon import Daemon, KvState
from benchmarks.memory.processes import Memory, memory_of, worker_of
from benchmarks.memory.static import static_kv_bytes
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient, Stream, makespan_s, stream_each
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import LlamaCpp, puna_server
from benchmarks.servers.watching import Sample, watching
from benchmarks.weights.files import BenchFile, bench_file

_FILES = "Q4_0", "Q4_1", "Q8_0", "Q4_K_M", "F16"
_CONTEXT, _NUM_SLOTS = 2048, 4
_OVERCOMMITMENT = 4
_PROMPT_TOKENS, _NEW_TOKENS = 640, 96
_LOOK_EVERY_S = 0.02
_BUFFERS = 16 << 20
"""What the worker's own memory may grow by besides KV: larger buffers, the heap."""


@dataclass(frozen=True)
class Course:
    """streams: of each model, with the limit. ample: without."""

    streams: list[list[Stream]]
    ample: list[list[Stream]]
    kv: list[Sample[KvState]]
    worker: list[Sample[Memory]]
    loaded: Memory
    """Of the worker, with all models loaded and used, without KV."""

    @property
    def peak_kv(self) -> int:
        return max(look.value.committed + look.value.leased for look in self.kv)

    @property
    def peak_growth(self) -> int:
        """Of the worker's own memory, beyond `loaded`."""
        return max(look.value.anonymous for look in self.worker) - self.loaded.anonymous


class Theirs(NamedTuple):
    streams: list[list[Stream]]
    memory: Memory
    """Of a server for each model, before any request."""


def measure(setup: Setup) -> Findings:
    files = [bench_file(name) for name in _FILES]
    num_slots = 2 if setup.quick else _NUM_SLOTS
    static = sum(static_kv_bytes(file, _CONTEXT, num_slots) for file in files)
    limit = static // _OVERCOMMITMENT
    prompts = Prompts(files[0].path)
    texts = [[prompts.take(_PROMPT_TOKENS) for _ in range(num_slots)] for _ in files]
    ours, theirs = _puna(setup, files, texts, limit), _llamacpp(setup, files, texts)
    title = (
        f"five models, {num_slots} requests each at once; their static KV: {mebibytes(static)}, "
        f"the limit: {mebibytes(limit)}"
    )
    for row in _rows(ours, theirs, limit, static):
        yield Finding(title, row)


def _puna(setup: Setup, files: Sequence[BenchFile], texts: Sequence[Sequence[str]], limit: int) -> Course:
    environment = {
        "OLLAMA_KVCACHED_MEMORY_GB": f"{2 * _OVERCOMMITMENT * limit}B",
        "OLLAMA_CONTEXT_LENGTH": str(_CONTEXT),
        "OLLAMA_NUM_PARALLEL": str(len(texts[0])),
        "PUNA_KV_DISK": "0",  # whose prefixes would spare the second time the computing
    }
    with puna_server(files[0], setup.threads, environment) as server:
        daemon, worker = Daemon(server.url), worker_of(server.pid)
        clients = [PunaClient(server.url, file.model) for file in files]
        for client in clients:
            daemon.load(client.model)
        ample = _ask_all(clients, texts)
        daemon.trim()
        daemon.set_kv_limit(limit)
        loaded = memory_of(worker)
        # The daemon answers between two steps, the system at any time.
        with (
            watching(daemon.kv, _LOOK_EVERY_S) as kv,
            watching(lambda: memory_of(worker), _LOOK_EVERY_S) as memory,
        ):
            streams = _ask_all(clients, texts)
        return Course(streams, ample, kv, memory, loaded)


def _ask_all(clients: Sequence[Client], texts: Sequence[Sequence[str]]) -> list[list[Stream]]:
    requests = [(client, text) for client, of in zip(clients, texts, strict=True) for text in of]
    streams, each = stream_each(requests, _NEW_TOKENS), len(texts[0])
    return [streams[i : i + each] for i in range(0, len(streams), each)]


@contextmanager
def _peers(setup: Setup, files: Sequence[BenchFile], num_slots: int) -> Iterator[list[LlamaCpp]]:
    """A llama.cpp server for each model."""
    # Threads of several servers on one core would wait for each other; repacking copies weights, and it is KV
    # that counts here.
    slots = max(setup.threads // len(files), 1), num_slots, "repacking off"
    with ExitStack() as stack:
        yield [
            stack.enter_context(setup.peer.server(file, *slots, context_tokens=_CONTEXT * num_slots))
            for file in files
        ]


def _llamacpp(setup: Setup, files: Sequence[BenchFile], texts: Sequence[Sequence[str]]) -> Theirs:
    with _peers(setup, files, len(texts[0])) as servers:
        memory = memory_of(*(server.pid for server in servers))
        return Theirs(_ask_all([LlamaCppClient(server.url) for server in servers], texts), memory)


def _num_at_once(streams: Sequence[Sequence[Stream]]) -> int:
    """Most models that were answering at the same time."""
    spans = [(min(s.arrivals[0] for s in of), max(s.arrivals[-1] for s in of)) for of in streams]
    return max(sum(begin <= at <= end for begin, end in spans) for at, _ in spans)


def _rows(ours: Course, theirs: Theirs, limit: int, static: int) -> Iterator[Row]:
    num_models, at_once = len(ours.streams), _num_at_once(ours.streams)
    streams, ample, peer = (list(chain(*of)) for of in (ours.streams, ours.ample, theirs.streams))
    yield Row(
        "models that answer at the same time",
        f"{at_once} of {num_models}; {len(streams)} requests answered",
        f"within the limit {num_models * limit // static} of {num_models}",
        target=Target(num_models),
        value=at_once,
    )
    yield Row(
        f"KV memory at its most, of {len(ours.kv)} looks",
        mebibytes(ours.peak_kv),
        f"{mebibytes(static)}: {static / limit:.1f} times the limit",
        static / ours.peak_kv,
        Target(limit, is_least=False, show=mebibytes),
        ours.peak_kv,
    )
    yield Row(
        f"the worker's own memory at its most, of {len(ours.worker)} looks, beyond what it had with all "
        "models loaded and no KV; "
        "llama.cpp: five servers' before any request",
        mebibytes(ours.peak_growth),
        mebibytes(theirs.memory.anonymous),
        theirs.memory.anonymous / ours.peak_growth,
        Target(limit + _BUFFERS, is_least=False, show=mebibytes),
        ours.peak_growth,
    )
    num_same = sum(a.text == b.text for a, b in zip(streams, ample, strict=True))
    yield Row(
        "answers that are the same as with ample memory",
        f"{num_same} of {len(streams)}",
        target=Target(len(streams)),
        value=num_same,
    )
    took, ample_took, peer_took = map(makespan_s, (streams, ample, peer))
    yield Row(
        f"all done after; llama.cpp: with {_OVERCOMMITMENT} times the memory",
        f"{seconds(took)}, with ample memory {seconds(ample_took)}",
        seconds(peer_took),
        peer_took / took,
    )
