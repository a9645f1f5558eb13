"""One step, from the scheduler's decision to what each sequence has got."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, SampleResult, TokenMask, compute_masks
from puna.backends.base import DeviceOutOfMemory, StepResult, StepSuspended
from puna.engine.faults import unforeseen
from puna.engine.model import Model
from puna.engine.observation.recorder import Recorder
from puna.engine.request import TokenLogprob
from puna.engine.scheduling.scheduler import Step
from puna.engine.sequences.batch import Part, Slice, batch_of, num_threads, part_of
from puna.engine.sequences.drawn import Advance, advances, logprobs_of
from puna.engine.sequences.sequence import Sequence
from puna.engine.steps.interrupts import Interrupts


class Failure(NamedTuple):
    """A sequence that cannot go on, and why."""

    sequence: Sequence
    error: str


class Outcome(NamedTuple):
    """The result of a step. Sequences in none of its lists have more of their prompt to compute."""

    advances: list[tuple[Slice, Advance]]
    failures: list[Failure]
    embedded: Items[Sequence] = ()
    """Those whose embeddings are complete."""
    logprobs: Mapping[Slice, list[TokenLogprob]] = MappingProxyType({})
    """One per drawn token, for the sequences that want them."""
    was_interrupted: bool = False
    """Nothing was computed: nobody waited for it any more, or only those that fail were in its way."""
    was_suspended: bool = False
    """It is to go on."""


class StepRunner:
    """Runs steps on one device. An error of one sequence leaves the others alone."""

    def __init__(self, recorder: Recorder) -> None:
        self.interrupts = Interrupts()
        self._recorder = recorder

    def run(self, step: Step) -> Outcome:
        """Computes, counts as computed and samples; the caller commits."""
        outcome = self._run(step)
        if not outcome.failures:
            return outcome
        return outcome._replace(failures=[f for f in outcome.failures if f.sequence.is_running])

    def _run(self, step: Step) -> Outcome:
        """Failures may be of sequences that left while the step was suspended."""
        model, slices = step.model, step.slices
        now_ns = self._recorder.mark()
        for s in slices:
            if not s.sequence.record.started_ns:
                s.sequence.record.started(now_ns)
        slices, parts, failures = _prepare(slices)
        if not slices:
            return Outcome([], failures)
        try:
            result = self._compute(step, slices, parts)
            if result is None:
                _lose_states(slices)
                return Outcome([], failures, was_interrupted=True)
            drawing = [s for s in slices if s.draws]
            samples = result.samples
            logprobs = logprobs_of(drawing, samples, model.token_table)
            advanced = list(zip(drawing, advances(drawing, samples), strict=True))
            _pool(slices, parts, result.hidden)
            slices = [s for s in slices if s.sequence.is_running]
        except StepSuspended:
            return Outcome([], failures, was_suspended=True)
        except (NativeError, DeviceOutOfMemory, MemoryError) as error:
            _lose_states(slices)
            if damaged := _with_damaged_adapters(slices, parts):
                return Outcome([], failures + damaged, was_interrupted=True)
            # The device refused this batch: its requests fail, all others go on.
            text = f"the model failed to run: {str(error) or 'out of memory'}"
            return Outcome([], failures + [Failure(s.sequence, text) for s in slices])
        except Exception as error:  # the batch cannot be trusted
            _lose_states(slices)
            failures += [Failure(s.sequence, unforeseen(s.sequence.id, error)) for s in slices]
            return Outcome([], failures)
        text = "no token can be drawn: "
        failures += [Failure(drawing[i].sequence, text + error) for i, error in samples.errors.items()]
        _count(model, slices, samples, failures)
        if failures:
            failed = {failure.sequence for failure in failures}
            advanced = [(s, advance) for s, advance in advanced if s.sequence not in failed]
            slices = [s for s in slices if s.sequence not in failed]
        embedded = [s.sequence for s in slices if s.completes and not s.draws]
        return Outcome(advanced, failures, embedded, logprobs)

    def _compute(self, step: Step, slices: Items[Slice], parts: Items[Part]) -> StepResult | None:
        """None: it was interrupted. Raises StepSuspended."""
        model = step.model
        samplers = [sampler for s in slices if s.draws and (sampler := s.sequence.sampler)]
        masks = _masks_of(slices)
        threads, goes_on = num_threads([s.sequence for s in slices]), model.suspended is not None
        batch = batch_of(parts, threads, self.interrupts.control, masks, goes_on=goes_on)
        self._recorder.mark()
        self.interrupts.begin({s.sequence.id for s in slices if s.sequence.is_running}, step.limit_s)
        try:
            result = model.device.step(batch, model.kv.memories, samplers)
        except NativeError:
            if self.interrupts.control.is_stopped:
                return None
            raise
        finally:
            self.interrupts.end()
        self._recorder.mark()
        return result


def _masks_of(slices: Items[Slice]) -> list[TokenMask | None]:
    """Of each row of the step; empty: no reply has a grammar."""
    held = [(s.sequence.grammar, s.drafts) for s in slices if s.draws and s.sequence.grammar is not None]
    if not held:
        return []
    computed = iter(compute_masks([grammar for grammar, _ in held], [drafts for _, drafts in held]))
    masks: list[TokenMask | None] = []
    for s in slices:
        if s.draws:
            num_rows = 1 + len(s.drafts)
            masks += islice(computed, num_rows) if s.sequence.grammar is not None else [None] * num_rows
    return masks


def _prepare(slices: Items[Slice]) -> tuple[list[Slice], list[Part], list[Failure]]:
    prepared, parts, failures = [], [], []
    for s in slices:
        try:
            parts.append(part_of(s))
            prepared.append(s)
        except Exception as error:  # is its own
            failures.append(Failure(s.sequence, unforeseen(s.sequence.id, error)))
    return prepared, parts, failures


def _with_damaged_adapters(slices: Items[Slice], parts: Items[Part]) -> list[Failure]:
    """Those whose adapter's file was cut short, whatever else a step of them hit."""
    failures = []
    for s, part in zip(slices, parts, strict=True):
        try:
            if part.adapter is not None:
                part.adapter.check_whole()
        except NativeError as error:
            failures.append(Failure(s.sequence, f"the adapter cannot be used: {error}"))
    return failures


def _lose_states(slices: Items[Slice]) -> None:
    for s in slices:
        s.sequence.table.failed()


def _pool(slices: Items[Slice], parts: Items[Part], hidden: NDArray[np.float32]) -> None:
    """hidden: what the parts asked for, one's behind the other's."""
    if len(hidden) == 0:
        return
    begin = 0
    for s, part in zip(slices, parts, strict=True):
        if (pool := s.sequence.pool) is not None:
            end = begin + len(part.hidden)
            pool.add(s.sequence.num_computed + s.num_tokens, hidden[begin:end])
            begin = end


def _advance_states(slices: Items[Slice], result: SampleResult) -> None:
    """Drafts that are right are behind the state already."""
    num_drawn = iter((result.starts[1:] - result.starts[:-1]).tolist())
    for s in slices:
        num_accepted = max(next(num_drawn) - 1, 0) if s.draws else 0
        s.sequence.table.stepped(s.sequence.num_computed + s.num_tokens + num_accepted)


def _count(model: Model, slices: Items[Slice], result: SampleResult, failures: list[Failure]) -> None:
    """Counts the slices as computed, and adds the sequences for which that fails to `failures`, each once."""
    if model.kv.has_states:
        _advance_states(slices, result)
    for s in slices:
        try:
            num_left = max(s.sequence.num_prompt - s.sequence.num_computed, 0)
            s.sequence.record.computed(min(s.num_tokens, num_left))
            s.sequence.num_computed += s.num_tokens
            model.policy.computed(s.sequence)
            s.sequence.table.slide(s.sequence.position)
        except Exception as error:  # is its own
            s.sequence.cursor = None  # nobody else is to find what may be wrong
            if s.sequence not in [failure.sequence for failure in failures]:
                failures.append(Failure(s.sequence, unforeseen(s.sequence.id, error)))
