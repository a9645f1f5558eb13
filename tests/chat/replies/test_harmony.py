"""Thoughts and answer in channels are told apart while they stream, and nothing of a head is shown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.replies.families.harmony import HarmonyParser, writes_channels

pytestmark = pytest.mark.unit

REPLY = (
    "<|channel|>analysis<|message|>Hm, 1 < 2.<|end|><|start|>assistant<|channel|>commentary to=f "
    "<|constrain|>json<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>Yes <|x|>"
)


def stream(pieces: list[str]) -> tuple[str, str]:
    parser = HarmonyParser()
    thoughts = [parser.add(piece) for piece in pieces] + [parser.flush()]
    return "".join(t.thinking for t in thoughts), "".join(t.content for t in thoughts)


def test_analysis_is_thinking_and_the_rest_is_content() -> None:
    assert stream([REPLY]) == ("Hm, 1 < 2.", "{}Yes <|x|>")


@given(st.lists(st.integers(0, len(REPLY)), max_size=12))
def test_however_it_is_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(REPLY)]
    assert stream([REPLY[a:b] for a, b in itertools.pairwise(ends)]) == ("Hm, 1 < 2.", "{}Yes <|x|>")


def test_without_tags_all_is_content() -> None:
    assert stream(["a ", "b<|mess"]) == ("", "a b<|mess")


def test_templates_that_write_channels() -> None:
    assert writes_channels("<|start|>assistant<|channel|>final<|message|>{{ m.content }}")
    assert not writes_channels("<|im_start|>{{ m.role }}")
