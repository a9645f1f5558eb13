"""Where the KV of prompts came from: a table of the models."""

from __future__ import annotations

from datetime import datetime

from puna.cli.client import Json
from puna.cli.output.terminal import one_line

_FIELDS = {"COMPUTED": "computed", "IN MEMORY": "in_memory", "ON DISK": "on_disk"}
_TITLE = "PROMPT TOKENS"
_WIDTH = 11


def token_lines(memory: Json) -> list[str]:
    """None if there was no prompt yet."""
    everything = memory["prompt_tokens"]
    if not any(everything.values()):
        return []
    counts = [(one_line(model["name"]), model["prompt_tokens"]) for model in memory["models"]]
    rows = [(name, [f"{tokens[field]:,}" for field in _FIELDS.values()]) for name, tokens in counts]
    # Those that were unloaded count, too.
    rows.append(("(all)", [f"{everything[field]:,}" for field in _FIELDS.values()]))
    width = max(len(_TITLE), *(len(name) for name, _ in rows))
    return [_line(_TITLE, list(_FIELDS), width), *(_line(*row, width) for row in rows), _since(memory)]


def _line(name: str, cells: list[str], width: int) -> str:
    return "  ".join([name.ljust(width), *(cell.rjust(_WIDTH) for cell in cells)])


def _since(memory: Json) -> str:
    since = datetime.fromisoformat(memory["since"]).astimezone()
    return f"since {since:%Y-%m-%d %H:%M:%S}"
