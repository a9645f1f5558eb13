"""Tab completes the commands of a conversation."""

from __future__ import annotations

from typing import Any

from prompt_toolkit.completion import NestedCompleter

from puna.registry.modelfile.parameters import BOOLEANS, FLOATS, INTEGERS, TEXTS

_SET: dict[str, Any] = {
    "parameter": dict.fromkeys(sorted(INTEGERS | FLOATS | BOOLEANS | TEXTS | {"stop"})),
    "format": {"json": None},
    "think": dict.fromkeys(("low", "medium", "high", "max")),
    **dict.fromkeys(("system", "history", "nohistory", "wordwrap", "nowordwrap", "noformat")),
    **dict.fromkeys(("verbose", "quiet", "nothink")),
}
_SHOW = ("info", "license", "modelfile", "parameters", "system", "template")


def slash_completer() -> NestedCompleter:
    """Of the commands, not of what messages say."""
    return NestedCompleter.from_nested_dict(
        {
            "/set": _SET,
            "/show": dict.fromkeys(_SHOW),
            "/help": dict.fromkeys(("set", "show", "shortcuts")),
            **dict.fromkeys(("/load", "/save", "/list", "/clear", "/bye", "/exit", "/?")),
        }
    )
