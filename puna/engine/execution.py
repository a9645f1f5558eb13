"""One step, from the scheduler's decision to what each sequence has got."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import NamedTuple

from puna._native import NativeError, ThreadPool, TokenTable
from puna.engine.batch import Part, Slice, batch_of, num_threads, part_of
from puna.engine.faults import unforeseen
from puna.engine.interrupts import Interrupts, StepInterrupted
from puna.engine.recorder import Recorder
from puna.engine.resident import Resident
from puna.engine.sampling import Drawn, sample
from puna.engine.sequence import Sequence
from puna.engine.text import Advance, advances


class Failure(NamedTuple):
    """A sequence that cannot go on, and why."""

    sequence: Sequence
    error: str


class Outcome(NamedTuple):
    """What a step brought. Sequences in neither list have more of their prompt to compute."""

    advances: list[tuple[Slice, Advance]]
    failures: list[Failure]
    was_interrupted: bool = False
    """Nothing was computed: nobody waited for it any more."""


class StepRunner:
    """Runs steps on one device. What goes wrong with one sequence leaves the others alone."""

    def __init__(self, pool: ThreadPool, recorder: Recorder) -> None:
        """pool: for sampling."""
        self.interrupts = Interrupts()
        self._pool = pool
        self._recorder = recorder

    def run(self, model: Resident, slices: Items[Slice], table: TokenTable | None) -> Outcome:
        """Computes, counts as computed and samples; the caller commits. table: of the model's tokens."""
        now_ns = self._recorder.mark()
        for s in slices:
            s.sequence.record.started(now_ns)
        prepared, failures = _prepare(slices)
        if not prepared:
            return Outcome([], failures)
        slices = [s for s, _ in prepared]
        try:
            drawn = self._compute(model, prepared, table)
            advanced, unsound = _advance(slices, drawn)
        except StepInterrupted:
            return Outcome([], failures, was_interrupted=True)
        except (NativeError, MemoryError) as error:
            # The device refused this batch: its requests fail, all others go on.
            text = f"the model failed to run: {str(error) or 'out of memory'}"
            return Outcome([], failures + [Failure(s.sequence, text) for s in slices])
        except Exception as error:  # the batch cannot be trusted
            failures += [Failure(s.sequence, unforeseen(s.sequence.id, error)) for s in slices]
            return Outcome([], failures)
        failures += unsound
        failed = {failure.sequence for failure in unsound}
        for failure in _count(model, slices):
            if failure.sequence not in failed:
                failures.append(failure)
                failed.add(failure.sequence)
        if failed:
            advanced = [(s, advance) for s, advance in advanced if s.sequence not in failed]
        return Outcome(advanced, failures)

    def _compute(
        self, model: Resident, prepared: Items[tuple[Slice, Part]], table: TokenTable | None
    ) -> list[Drawn]:
        slices = [s for s, _ in prepared]
        parts, threads = [part for _, part in prepared], num_threads([s.sequence for s in slices])
        batch = batch_of(parts, threads, self.interrupts.control)
        self._recorder.mark()
        with self.interrupts.watching(s.sequence.id for s in slices):
            logits = model.device_model.run(batch, model.arena)
        self._recorder.mark()
        drawn = sample(self._pool, logits, slices, table)
        self._recorder.mark()
        return drawn


def _prepare(slices: Items[Slice]) -> tuple[list[tuple[Slice, Part]], list[Failure]]:
    prepared, failures = [], []
    for s in slices:
        try:
            prepared.append((s, part_of(s)))
        except Exception as error:  # is its own
            failures.append(Failure(s.sequence, unforeseen(s.sequence.id, error)))
    return prepared, failures


def _advance(slices: Items[Slice], drawn: Items[Drawn]) -> tuple[list[tuple[Slice, Advance]], list[Failure]]:
    complete = [s for s in slices if s.completes]
    failures = []
    if any(d.error is not None for d in drawn):
        text = "nothing can be drawn from what the model gave: "
        failures = [
            Failure(s.sequence, text + d.error)
            for s, d in zip(complete, drawn, strict=True)
            if d.error is not None
        ]
        sound = [(s, d) for s, d in zip(complete, drawn, strict=True) if d.error is None]
        complete, drawn = [s for s, _ in sound], [d for _, d in sound]
    return list(zip(complete, advances(complete, drawn), strict=True)), failures


def _count(model: Resident, slices: Items[Slice]) -> Iterator[Failure]:
    """Those who have what was computed of them, now have it. Yields those with whom that fails."""
    for s in slices:
        try:
            s.sequence.num_computed += s.num_tokens
            model.policy.computed(s.sequence)
        except Exception as error:  # is its own
            s.sequence.cursor = None  # nobody else is to find what may be wrong
            yield Failure(s.sequence, unforeseen(s.sequence.id, error))
