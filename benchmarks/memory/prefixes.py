"""A long prefix whose model was unloaded, or whose daemon ended: how soon is it warm again?"""

from __future__ import annotations

import mmap
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.figures import Row, Target, median_and_range, plain, seconds
from benchmarks.memory.daemon import Daemon
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_TAIL_TOKENS, _NEW_TOKENS = 24, 48
_CONTEXT_TOKENS = 6144
_AWAY_S = 1.0
"""How long the model is not there."""
_KV_BYTES_AT_HAND = 256 << 20
"""More than the prefix takes."""
_TARGET = Target(2, is_least=False)


@dataclass
class Answers:
    """first_token_s: of each prompt, in order."""

    texts: list[str] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)

    def ask(self, client: Client, prompt: str) -> None:
        stream = client.stream(prompt, _NEW_TOKENS)
        self.texts.append(stream.text)
        self.first_token_s.append(stream.first_token_s)

    @property
    def median_s(self) -> float:
        return median(self.first_token_s)

    def __str__(self) -> str:
        return median_and_range(self.first_token_s, seconds)


@dataclass
class Course:
    """Answers by what had happened before; llama.cpp computes anew after a restart."""

    warm: Answers = field(default_factory=Answers)
    reloaded: Answers = field(default_factory=Answers)
    reloaded_at_hand: Answers = field(default_factory=Answers)
    """With memory that the system has ready."""
    reloading: Answers = field(default_factory=Answers)
    restarted: Answers = field(default_factory=Answers)
    computed: Answers = field(default_factory=Answers)
    """All prompts of the others, one after the other."""
    fresh_memory_s: list[float] = field(default_factory=list)
    """What the system takes to bring _KV_BYTES_AT_HAND, each time."""

    @property
    def num_same(self) -> int:
        """Answers that are what computing the whole prompt gives, too."""
        answers = (self.warm, self.reloaded, self.reloaded_at_hand, self.reloading, self.restarted)
        others = [text for each in answers for text in each.texts]
        return sum(a == b for a, b in zip(others, self.computed.texts, strict=True))


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prefix_tokens, rounds = (1000, 2) if setup.quick else (4000, 5)
    prompts = Prompts(file.path)
    prefix = prompts.take(prefix_tokens)
    texts = [f"{prefix}\n\n{prompts.take(_TAIL_TOKENS)}" for _ in range(5 * rounds)]
    *unloaded, restarted = (texts[i * rounds : (i + 1) * rounds] for i in range(5))
    course = Course()
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as home:
        _unloads(setup, file, home, course, prefix, *unloaded)
        _restarts(setup, file, home, course, restarted)
    _computes(setup, file, course, texts)
    theirs = _llamacpp(setup, file, prefix, unloaded[0], restarted)
    title = f"a prefix of {prefix_tokens} tokens after its model was gone, {file.title}"
    for row in _rows(course, theirs):
        yield Finding(title, row)


def _unloads(
    setup: Setup,
    file: BenchFile,
    home: str,
    course: Course,
    prefix: str,
    *prompts: Sequence[str],
) -> None:
    """prompts: for when the prefix is warm, after a reload, after one with memory at hand, for when the
    request itself reloads.
    """
    warm, reloaded, reloaded_at_hand, reloading = prompts
    with puna_server(file, setup.threads, {"HOME": home}) as server:
        daemon, client = Daemon(server.url), PunaClient(server.url, file.model)
        client.stream(prefix, 4)
        for prompt in warm:
            course.warm.ask(client, prompt)
        for prompt in reloaded:
            _unload(daemon, file)
            daemon.load(file.model)
            course.reloaded.ask(client, prompt)
        for prompt in reloaded_at_hand:
            _unload(daemon, file)
            daemon.load(file.model)
            course.fresh_memory_s.append(_have_memory_at_hand())
            course.reloaded_at_hand.ask(client, prompt)
        for prompt in reloading:
            _unload(daemon, file)
            course.reloading.ask(client, prompt)


def _unload(daemon: Daemon, file: BenchFile) -> None:
    daemon.unload(file.model)
    time.sleep(_AWAY_S)


def _have_memory_at_hand() -> float:
    """Takes memory and gives it back; seconds that the taking took.

    A virtual machine's host may take back what is free: then fresh memory comes much slower than on a machine
    of one's own, but not what was used a moment ago.
    """
    with mmap.mmap(-1, _KV_BYTES_AT_HAND, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        start_s = time.perf_counter()
        for page in range(0, _KV_BYTES_AT_HAND, mmap.PAGESIZE):
            memory[page] = 1
        return time.perf_counter() - start_s


def _restarts(setup: Setup, file: BenchFile, home: str, course: Course, prompts: Sequence[str]) -> None:
    for prompt in prompts:
        with puna_server(file, setup.threads, {"HOME": home}) as server:
            Daemon(server.url).load(file.model)
            course.restarted.ask(PunaClient(server.url, file.model), prompt)


def _computes(setup: Setup, file: BenchFile, course: Course, prompts: Sequence[str]) -> None:
    with puna_server(file, setup.threads, {"PUNA_KV_DISK": "0"}) as server:
        daemon, client = Daemon(server.url), PunaClient(server.url, file.model)
        daemon.load(file.model)
        for prompt in prompts:
            daemon.trim()
            course.computed.ask(client, prompt)


def _llamacpp(
    setup: Setup, file: BenchFile, prefix: str, warm: Sequence[str], restarted: Sequence[str]
) -> Course:
    course = Course()
    slots = (file, setup.threads, 1, "default")
    with setup.peer.server(*slots, context_tokens=_CONTEXT_TOKENS) as server:
        client = LlamaCppClient(server.url)
        client.stream(prefix, 4)
        for prompt in warm:
            course.warm.ask(client, prompt)
    for prompt in restarted[:2]:
        with setup.peer.server(*slots, context_tokens=_CONTEXT_TOKENS) as server:
            course.restarted.ask(LlamaCppClient(server.url), prompt)
    return course


def _rows(ours: Course, theirs: Course) -> Iterator[Row]:
    figure = "first token, median and range"
    yield Row(f"{figure}: warm", str(ours.warm), str(theirs.warm))
    yield Row(f"{figure}: computed anew", str(ours.computed), str(theirs.restarted))
    gone = theirs.restarted.median_s
    for what, answers in (
        ("after unload and reload", ours.reloaded),
        ("after unload and reload, with memory that the system has ready", ours.reloaded_at_hand),
        ("after a restart of the daemon", ours.restarted),
    ):
        yield Row(f"{figure}: {what}", str(answers), str(theirs.restarted), gone / answers.median_s)
        slower = answers.median_s / ours.warm.median_s
        yield Row(f"{what} / warm", plain(slower), target=_TARGET, value=slower)
    yield Row(f"{figure}: after unload, with the loading", str(ours.reloading))
    per_mib_s = [seconds_ / (_KV_BYTES_AT_HAND >> 20) for seconds_ in ours.fresh_memory_s]
    yield Row("a MiB of fresh memory from the system, median and range", median_and_range(per_mib_s, seconds))
    total = len(ours.computed.texts)
    yield Row(
        "answers that are the same as when all is computed",
        f"{ours.num_same} of {total}",
        target=Target(total),
        value=ours.num_same,
    )
