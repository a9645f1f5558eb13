"""What is measured, by name: each returns its figures and their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.growth.bench_engine import BenchEngine, blocks_for, call_ms, prompt_of
from benchmarks.growth.cached_blocks import cached_blocks
from benchmarks.overhead.comparing import Figure

_LONG = 200_000
_ROUNDS = 5
_STEP_MS = 1.5
_STALL_MS = 20

Samples = list[tuple[Figure, list[float]]]


def steps() -> Samples:
    """Streams, with and without drafts."""
    samples: Samples = []
    for num_streams in (1, 16, 256):
        many = f"{num_streams} stream{'s' if num_streams > 1 else ''}"
        for title, token_s, num_draft, most in (
            ("no drafts", 0.0002, 0, _STEP_MS),
            ("text repeats, drafts seldom pay", 0.02, None, _STEP_MS),
            ("text repeats, 2 drafts each pay", 0.0002, 2, _STEP_MS),
            ("text repeats, 16 drafts each pay", 0.00001, None, None),
        ):
            figure = Figure(f"step, {many}, {title}", "ms", 3, most if num_streams == 256 else None)
            samples.append((figure, _stream_steps(num_streams, token_s, num_draft)))
    return samples


def _stream_steps(num_streams: int, token_s: float, num_draft: int | None) -> list[float]:
    # All prompts are computed at once, whoever streams already.
    engine = BenchEngine(
        num_streams * 400, step_s=0.05, token_s=token_s, prefill_tokens=1 << 15, max_slowdown=1e9
    )
    for index in range(num_streams):
        engine.submit(str(index), prompt_of(100, index), num_draft=num_draft)
    while len(engine.step()) < num_streams:
        pass
    for _ in range(30):
        engine.step()
    return [engine.step_ms() for _ in range(150)]


def waiting() -> Samples:
    """A request whose prompt is cached, but for its end, waits for memory beside one stream."""
    engine = BenchEngine(blocks_for(_LONG) + 260)
    engine.submit("first", prompt_of(_LONG, 1), max_tokens=1)
    engine.run_until_done("first")
    engine.submit("stream", prompt_of(200 * 16, 2))
    while not engine.step():
        pass
    before = [engine.step_ms() for _ in range(30)]
    engine.submit("waits", prompt_of(_LONG, 1) + prompt_of(2000, 3), max_tokens=1)
    engine.step()
    assert engine.core.stats().models[0].num_waiting == 1, "it was admitted"
    added = [engine.step_ms() - min(before) for _ in range(50)]
    return [(Figure("step, added by a waiting request with 200k cached tokens", "ms", 3, 0.1), added)]


def arrivals() -> Samples:
    """A thousand requests arrive between two steps."""
    submits, steps = [], []
    for _ in range(_ROUNDS):
        engine = BenchEngine(20_000)
        submits.append(
            call_ms(lambda: [engine.submit(str(i), prompt_of(100, i)) for i in range(1000)])  # noqa: B023
        )
        steps.append(engine.step_ms())
    return [
        (Figure("submit, 1,000 requests of 100 tokens", "ms", 1), submits),
        (Figure("step after 1,000 arrivals", "ms", 1, _STALL_MS), steps),
    ]


def long_prompt() -> Samples:
    """One prompt of 200k tokens: submitted, computed, cancelled."""
    submits, first_steps, draft_steps, cancels = [], [], [], []
    for round_index in range(_ROUNDS):
        engine = BenchEngine(2 * blocks_for(_LONG), prefill_tokens=8192)
        prompt = prompt_of(_LONG, round_index)
        submits.append(call_ms(lambda: engine.submit("long", prompt, num_draft=None)))  # noqa: B023
        first_steps.append(engine.step_ms())
        while not engine.step():
            pass
        draft_steps.append(max(engine.step_ms() for _ in range(60)))
        cancels.append(call_ms(lambda: engine.core.cancel("long")))  # noqa: B023
    return [
        (Figure("submit, prompt of 200k tokens", "ms", 2, _STALL_MS), submits),
        (Figure("its first step", "ms", 2, _STALL_MS), first_steps),
        (Figure("longest of 60 steps after its first token, with drafts", "ms", 2, _STALL_MS), draft_steps),
        (Figure("cancel at 200k tokens", "ms", 2, _STALL_MS), cancels),
    ]


def states() -> Samples:
    """Two prompts of 200k tokens, beside others' in the cache, of a model with recurrent layers."""
    found, waited = [], []
    engine = BenchEngine(8 * blocks_for(_LONG), prefill_tokens=8192, state_blocks=100)
    for seed in range(_ROUNDS):
        engine.submit("first", prompt_of(_LONG, seed), max_tokens=1)
        for _ in range(5):
            engine.step()
        before = [engine.step_ms() for _ in range(5)]
        engine.submit("same", prompt_of(_LONG, seed), max_tokens=1)
        engine.step()
        waited += [engine.step_ms() - min(before) for _ in range(5)]
        while engine.core.has_work:
            engine.step()
        engine.submit("again", prompt_of(_LONG, seed) + prompt_of(100, seed), max_tokens=1)
        num_tokens = engine.device.num_tokens
        found.append(engine.step_ms())
        while engine.core.has_work:
            engine.step()
        assert engine.device.num_tokens < num_tokens + 200, "the state was not found"
    return [
        (Figure("first step of a prompt of 200k tokens with a state behind them", "ms", 2, _STALL_MS), found),
        (Figure("step, added by a request that waits for a state of 100k tokens", "ms", 2, 2), waited),
    ]


def passing() -> Samples:
    """A short request arrives behind a lone prompt of 8k tokens; a step of 256 tokens takes 0.8 s."""
    samples: Samples = []
    for num_short in (1, 8):
        engine = BenchEngine(10_000, step_s=0.03, token_s=0.003)
        engine.submit("long", prompt_of(8192, 0), max_tokens=1)
        engine.step()
        start_s = engine.clock.now_s
        for index in range(num_short):
            engine.submit(f"short {index}", prompt_of(100, 1 + index), max_tokens=1)
        ends = dict(_ends(engine))
        short_s = max(at_s - start_s for name, at_s in ends.items() if name != "long")
        who = "a short request" if num_short == 1 else f"{num_short} short requests"
        most = 1.6 if num_short == 1 else None  # two steps
        figure = Figure(f"first token of {who} behind 8k tokens", "s of the device", 2, most)
        samples.append((figure, [short_s]))
        title = f"first token of the long one beside {who}"
        samples.append((Figure(title, "s of the device", 2), [ends["long"]]))
    return samples


def _ends(engine: BenchEngine) -> Iterator[tuple[str, float]]:
    while engine.core.has_work:
        for output in engine.step():
            if output.finish_reason:
                yield output.request_id, engine.clock.now_s


SCENARIOS: dict[str, Callable[[], Samples]] = {
    "steps": steps,
    "waiting": waiting,
    "arrivals": arrivals,
    "long_prompt": long_prompt,
    "states": states,
    "passing": passing,
    "cached_blocks": cached_blocks,
}
