"""What the benchmark of agents counts: unique tokens, losses; and that its trace has the shape it claims."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.agents.conversation import Agent, Conversation
from benchmarks.agents.playing import Course, WaveRecord
from benchmarks.agents.trace import MAIN, SUBAGENTS, Restart, Unload, Wave, full_trace
from benchmarks.agents.unique import Unique

pytestmark = pytest.mark.unit


def count_words(text: str) -> int:
    return len(text.split())


def record(new: int, computed: int, *, is_disturbed: bool = False) -> WaveRecord:
    counts = Counter({"hybrid": new}), Counter({"hybrid": computed})
    return WaveRecord(Wave((MAIN,)), *counts, answers=(), is_disturbed=is_disturbed)


def test_unique_tokens_are_the_nodes_of_the_trie():
    unique = Unique()
    prompts = [[1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 3], [1, 2, 3], [2, 2], [1, 2, 4]]
    assert [unique.add(prompt) for prompt in prompts] == [3, 2, 1, 0, 2, 0]
    assert unique.total == len({tuple(p[: i + 1]) for p in prompts for i in range(len(p))})


def test_a_loss_is_what_is_computed_twice_until_the_next():
    waves = [
        record(100, 100),
        record(10, 40, is_disturbed=True),
        record(10, 30),
        record(10, 10, is_disturbed=True),
    ]
    course = Course(waves)
    assert course.losses() == [50, 0]
    assert course.computed_twice() == course.computed_twice("hybrid") == 180 / 130


def test_thoughts_are_dropped_and_what_was_said_stays():
    conversation = Conversation(Agent("a", "hybrid", 50, (30,)), count_words)
    assert conversation.thinks
    conversation.add_turn("thoughts")
    conversation.thinks = False
    conversation.add_turn("said")
    first, second = (message for message in conversation.messages if message["role"] == "assistant")
    assert "thoughts" not in first["content"]
    assert second["content"].startswith("said\n")


def test_the_trace_is_of_five_conversations_a_main_one_four_times_as_long():
    events = list(full_trace())
    assert sum(isinstance(event, Unload) for event in events) == 1
    assert sum(isinstance(event, Restart) for event in events) == 1
    waves = [event for event in events if isinstance(event, Wave)]
    assert {agent for wave in waves for agent in wave.agents} == {MAIN, *SUBAGENTS}
    assert {agent.model for agent in (MAIN, *SUBAGENTS)} == {"hybrid", "attention"}
    restart = events.index(Restart())
    before, after = events[restart - 1], events[restart + 1]
    assert isinstance(before, Wave)
    assert isinstance(after, Wave)
    assert (before.timed, after.timed) == ("warm", "restarted")
    assert before.result_tokens == after.result_tokens is not None  # what is compared has as much to compute
