"""Mutated model files are used or refused; thousands more: make hostile."""

from __future__ import annotations

import pytest

from tests.hostile.gguf.campaign import run_cases
from tests.tiny import TINY

pytestmark = pytest.mark.native


def test_mutated_files_are_used_or_refused() -> None:
    outcomes = run_cases(seed=1, begin=0, end=300)
    assert outcomes.total() == 300
    assert outcomes["no header"] < 200  # the mutations are fine enough to come far
    assert outcomes["tokenizer, step"] > 20


def test_contradictory_files_of_every_architecture_are_refused_by_name() -> None:
    outcomes = run_cases(seed=3, begin=0, end=2 * len(TINY), module="tests.hostile.gguf.contradictions")
    assert outcomes["refused"] > len(TINY) > outcomes["no step"]
