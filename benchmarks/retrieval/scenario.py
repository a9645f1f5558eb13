"""The turns, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.figures import Row, Target, mebibytes, p50_p95, percentile
from benchmarks.memory.daemon import Daemon
from benchmarks.retrieval.files import EMBED, model_files
from benchmarks.retrieval.stacks import Servers, a_server_each, one_daemon, router
from benchmarks.retrieval.turn import Conversation, Corpus, ask, embed, write_passages
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.weights.files import BenchFile

_TITLE = "Retrieval: embed, search, rerank 20, answer, title; four models"
_SHARE = 0.6
_PASSAGES = 1000
_CONVERSATIONS, _TURNS = 4, 6
_QUESTIONS = ("When does the office open?", "Who pays for travel?", "How do I get a permit?")


@dataclass(frozen=True)
class Result:
    times_s: Sequence[float]
    memory_bytes: int
    repeated_tokens: int
    recomputed_tokens: int


def measure(setup: Setup) -> Findings:
    files = model_files()
    passages = write_passages(_PASSAGES // 10 if setup.quick else _PASSAGES)
    turns = 2 if setup.quick else _TURNS
    with a_server_each(files, setup.threads, setup.peer) as servers:
        corpus = Corpus(passages, embed(servers.stack[EMBED], passages))
        apart = _run(servers, corpus, turns)
    limit = int(_SHARE * apart.memory_bytes)
    ours, least_resident = _puna(setup, files, passages, limit, turns)
    for row in _rows(ours, apart, limit, least_resident):
        yield Finding(_TITLE, row)
    if setup.peer.binary is not None:
        most = max(1, int(_SHARE * len(files)))
        with router(files, setup.threads, setup.peer, most) as servers:
            routed = _run(servers, corpus, turns)
        yield Finding(_TITLE, _turn_row(f"llama.cpp's router, {most} models at once", ours, routed))


def _puna(
    setup: Setup, files: Mapping[str, BenchFile], passages: Sequence[str], limit: int, turns: int
) -> tuple[Result, int]:
    """And how many models were resident behind the turn when the fewest were."""
    resident: list[int] = []
    with one_daemon(files, setup.threads, limit) as servers:
        daemon = Daemon(str(servers.stack[EMBED].http.base_url))
        corpus = Corpus(passages, embed(servers.stack[EMBED], passages))
        result = _run(servers, corpus, turns, lambda: resident.append(len(daemon.resident())))
    return result, min(resident)


def _run(servers: Servers, corpus: Corpus, num_turns: int, look: Callable[[], None] = lambda: None) -> Result:
    """Conversations take turns, so that no server can keep to one of them. look: called behind each turn."""
    conversations = [Conversation() for _ in range(_CONVERSATIONS)]
    ask(servers.stack, corpus, Conversation(), "Where?")  # reads files from disk
    for turn in range(num_turns):
        for number, conversation in enumerate(conversations):
            question = _QUESTIONS[(turn + number) % len(_QUESTIONS)]
            ask(servers.stack, corpus, conversation, f"{question} ({turn}.{number})")
            look()
    return Result(
        [time_s for conversation in conversations for time_s in conversation.times_s],
        servers.memory_bytes(),
        sum(conversation.repeated_tokens for conversation in conversations),
        sum(conversation.recomputed_tokens for conversation in conversations),
    )


def _rows(ours: Result, apart: Result, limit: int, least_resident: int) -> Iterator[Row]:
    yield _turn_row("four llama.cpp servers", ours, apart)
    yield Row(
        f"memory of all processes; the limit is {_SHARE:.0%} of four llama.cpp servers'",
        mebibytes(ours.memory_bytes),
        mebibytes(apart.memory_bytes),
        apart.memory_bytes / ours.memory_bytes,
        Target(limit, is_least=False, show=mebibytes),
        ours.memory_bytes,
    )
    yield Row(
        "models resident behind each turn, at least",
        f"{least_resident} of 4",
        target=Target(4),
        value=least_resident,
    )
    yield Row(
        f"tokens of conversations computed again, of {ours.repeated_tokens:,} that came again",
        f"{ours.recomputed_tokens:,}",
        f"{apart.recomputed_tokens:,}",
        target=Target(0, is_least=False),
        value=ours.recomputed_tokens,
    )


def _turn_row(peer: str, ours: Result, theirs: Result) -> Row:
    p95 = percentile(theirs.times_s, 95) / percentile(ours.times_s, 95)
    return Row(
        f"a turn, p50 / p95 (their ratio); {peer}", p50_p95(ours.times_s), p50_p95(theirs.times_s), p95
    )
