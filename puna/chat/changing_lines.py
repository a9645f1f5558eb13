"""Lines at the beginning of system prompts that say nothing to the model and change with every request.

Left in, they would make every prompt a new one: nothing that was computed for earlier ones could be used
again. What is left out, and who sends it:

- `x-anthropic-billing-header: cc_version=...; cc_entrypoint=...; cch=...;` Claude Code, as the first block of
  the system prompt. The end of the version and `cch` are made of the request's content.
"""

from __future__ import annotations

import re

_CHANGING = re.compile(r"(?:x-anthropic-billing-header:[^\n]*(?:\n|\Z))+", re.IGNORECASE)


def without_changing_lines(text: str) -> str:
    """The system prompt, or a block of it, without such lines at its beginning."""
    match = _CHANGING.match(text)
    return text[match.end() :] if match else text
