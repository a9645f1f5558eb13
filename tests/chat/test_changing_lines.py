"""Lines of system prompts that change with every request."""

from __future__ import annotations

import pytest

from puna.chat.conversation.changing_lines import without_changing_lines

pytestmark = pytest.mark.unit

HEADER = "x-anthropic-billing-header: cc_version=2.1.77.a3f; cc_entrypoint=cli; cch=0f3a1;"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (HEADER, ""),
        (HEADER + "\nYou are an agent.", "You are an agent."),
        (f"{HEADER}\n{HEADER}\n\nYou are an agent.", "\nYou are an agent."),
        ("You are an agent.\n" + HEADER, "You are an agent.\n" + HEADER),
        ("An x-anthropic-billing-header: is no header.", "An x-anthropic-billing-header: is no header."),
        ("", ""),
    ],
)
def test_they_are_left_out_at_the_beginning_only(text, rest):
    assert without_changing_lines(text) == rest
