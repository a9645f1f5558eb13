"""Lines at the beginning of system prompts that say nothing to the model and change with every request.

Left in, they would make every prompt a new one: nothing that was computed for earlier ones could be used
again. What is left out, and who sends it:

- `x-anthropic-billing-header: cc_version=...; cc_entrypoint=...; cch=...;` Claude Code, as the first block of
  the system prompt. The end of the version and `cch` are made of the request's content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from puna.chat.messages import Message

_CHANGING = re.compile(r"(?:x-anthropic-billing-header:[^\n]*(?:\n|\Z))+", re.IGNORECASE)


def without_changing_lines(text: str) -> str:
    """The system prompt, or a block of it, without such lines at its beginning."""
    match = _CHANGING.match(text)
    return text[match.end() :] if match else text


def without_changing_lines_in(messages: Sequence[Message]) -> list[Message]:
    """A conversation whose system prompt is without them, or left out if it was no more than that."""
    if not messages or messages[0].role != "system":
        return list(messages)
    first, *rest = messages
    content = without_changing_lines(first.content)
    return rest if first.content and not content else [msgspec.structs.replace(first, content=content), *rest]
