"""The trace with little memory, and the same with a worker that is killed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.agents.daemon import PunaServers
from benchmarks.agents.llamacpp import LlamaCppServers
from benchmarks.agents.models import KV_BYTES_PER_TOKEN, agent_models
from benchmarks.agents.playing import Course, Player
from benchmarks.agents.prompts import PromptTokens
from benchmarks.agents.trace import Event, Wave, full_trace, short_trace
from benchmarks.figures import Row, Target, mebibytes, p50_p95, plain, seconds
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.weights.files import BenchFile

_SHARE_OF_MEMORY = 0.5
_NUM_KILLS = 5
_MODELS = {"hybrid": "the hybrid", "attention": "the model with attention only"}
_CACHES = "--kv-unified --cache-ram 8192 --cache-reuse 64 --ctx-checkpoints 128 --checkpoint-min-step 0"
"""With which llama.cpp computes least: a cache of prompts beside the slots, and snapshots of hybrids."""


@dataclass(frozen=True)
class _Plan:
    """needed: bytes that the KV of all prompts takes, each token once, without states and replies."""

    files: Mapping[str, BenchFile]
    prompts: Mapping[str, PromptTokens]
    trace: Sequence[Event]
    needed: int

    @property
    def limit(self) -> int:
        return int(self.needed * _SHARE_OF_MEMORY)

    @property
    def num_waves(self) -> int:
        return sum(isinstance(event, Wave) for event in self.trace)


def trace(setup: Setup) -> Findings:
    """One unload and one restart."""
    plan = _plan(setup)
    ours = _play(plan, setup)
    with LlamaCppServers(plan.files, setup.peer, setup.threads, _CACHES.split()) as servers:
        theirs = Player(plan.prompts).play(plan.trace, servers)
    title = f"five conversations of agents, KV memory {_SHARE_OF_MEMORY:.0%} of what they need"
    yield from (Finding(title, row) for row in _trace_rows(plan, ours, theirs))


def kills(setup: Setup) -> Findings:
    """The same, and the worker is killed in the midst of prompts."""
    plan = _plan(setup)
    num_kills = 2 if setup.quick else _NUM_KILLS
    waves = random.Random(1).sample(range(1, plan.num_waves - 1), num_kills)
    course = _play(plan, setup, waves)
    title = f"the same with {len(course.losses())} × `kill -9` of the worker in the midst of a prompt"
    yield from (Finding(title, row) for row in _kills_rows(course))


def _plan(setup: Setup) -> _Plan:
    files = agent_models()
    prompts = {model: PromptTokens(file.path) for model, file in files.items()}
    events = list(short_trace() if setup.quick else full_trace())
    unique = Player(prompts).unique_tokens(events)
    needed = sum(KV_BYTES_PER_TOKEN[model] * num_tokens for model, num_tokens in unique.items())
    return _Plan(files, prompts, events, needed)


def _play(plan: _Plan, setup: Setup, kills: Sequence[int] = ()) -> Course:
    with tempfile.TemporaryDirectory(prefix="puna-agents-") as home:
        environment = {"HOME": home, "OLLAMA_KVCACHED_MEMORY_GB": str(plan.limit / 2**30)}
        with PunaServers(plan.files, setup.threads, environment, kills) as servers:
            return Player(plan.prompts).play(plan.trace, servers)


def _trace_rows(plan: _Plan, ours: Course, theirs: Course) -> Iterator[Row]:
    yield Row("tokens of all prompts", f"{ours.num_tokens:,}", f"{theirs.num_tokens:,}")
    yield Row("unique among them", f"{ours.num_unique:,}", f"{theirs.num_unique:,}")
    yield Row("computed", f"{ours.num_computed:,}", f"{theirs.num_computed:,}")
    yield _twice_row("computed / unique", ours, 1.02, theirs)
    for model, title in _MODELS.items():
        yield Row(f"of {title}", _plain(ours.computed_twice(model)), _plain(theirs.computed_twice(model)))
    limit = f"{mebibytes(plan.limit)} of {mebibytes(plan.needed)}"
    yield Row("KV memory, of what all prompts take", limit, "unlimited")
    yield from _restart_rows(ours, theirs)
    yield Row("first token of all requests, p50 / p95", _first_tokens(ours), _first_tokens(theirs))
    yield Row(
        "the whole trace", seconds(ours.seconds), seconds(theirs.seconds), theirs.seconds / ours.seconds
    )


def _restart_rows(ours: Course, theirs: Course) -> Iterator[Row]:
    """Of the main conversation, when it is half as long as in the end."""
    (restarted,), (their_restarted,) = ours.first_token_s("restarted"), theirs.first_token_s("restarted")
    warm, their_warm = median(ours.first_token_s("warm")), median(theirs.first_token_s("warm"))
    yield Row("first token of a long prompt, warm", seconds(warm), seconds(their_warm))
    yield Row("the same after a restart, with the loading", seconds(restarted), seconds(their_restarted))
    yield Row(
        "after a restart / warm",
        plain(restarted / warm),
        plain(their_restarted / their_warm),
        target=Target(1.5, is_least=False),
        value=restarted / warm,
    )


def _kills_rows(course: Course) -> Iterator[Row]:
    yield Row("unique prompt tokens", f"{course.num_unique:,}")
    yield Row("computed", f"{course.num_computed:,}")
    yield _twice_row("computed / unique", course, 1.1)
    losses = course.losses()
    shown = f"{max(losses):,} ({', '.join(f'{loss:,}' for loss in losses)})"
    yield Row("computed twice because of a kill: the worst (all)", shown)
    yield Row("first token of all requests, p50 / p95", _first_tokens(course))


def _twice_row(figure: str, ours: Course, most: float, theirs: Course | None = None) -> Row:
    return Row(
        figure,
        _plain(ours.computed_twice()),
        _plain(theirs.computed_twice()) if theirs else "",
        target=Target(most, is_least=False),
        value=ours.computed_twice(),
    )


def _first_tokens(course: Course) -> str:
    return p50_p95([answer.first_token_s for record in course.waves for answer in record.answers])


def _plain(ratio: float) -> str:
    return f"{ratio:.3f}"
