"""`/set`: what a conversation can change of itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from puna.cli.output.terminal import one_line
from puna.cli.repl.conversation import Conversation
from puna.cli.repl.help import HELP
from puna.cli.run.options import parse_think
from puna.registry.modelfile.errors import ModelfileError
from puna.registry.modelfile.parameters import parse_parameter

_MODES: dict[str, tuple[dict[str, Any], str]] = {
    "nothink": ({"think": False}, "Set 'nothink' mode."),
    "noformat": ({"format": None}, "Disabled format."),
    "wordwrap": ({"word_wrap": True}, "Set 'wordwrap' mode."),
    "nowordwrap": ({"word_wrap": False}, "Set 'nowordwrap' mode."),
    "verbose": ({"verbose": True}, "Set 'verbose' mode."),
    "quiet": ({"verbose": False}, "Set 'quiet' mode."),
}
"""By name: changed fields of RunOptions, and what the user is told."""


def change_setting(conversation: Conversation, line: str) -> None:
    """Carries out `/set <line>`. Raises CliError for a level of thinking that there is not."""
    what, _, value = line.partition(" ")
    value = value.strip()
    if not what or (what == "system" and not value):
        print(HELP["set"] + "\n")
    elif what == "parameter":
        _set_parameter(conversation, value)
    elif what == "system":
        conversation.system = value
        print("Set system message.")
    elif what in ("history", "nohistory"):
        conversation.history.enabled = what == "history"
    elif what == "think":
        level = parse_think(value or "true")
        if level and "thinking" not in conversation.capabilities:
            model = one_line(conversation.model)
            print(f'warning: model "{model}" does not support thinking output', file=sys.stderr)
        told = f"Set 'think' mode to '{value}'." if value else "Set 'think' mode."
        _change(conversation, {"think": level}, told)
    elif what == "format":
        _set_format(conversation, value)
    elif what in _MODES:
        _change(conversation, *_MODES[what])
    else:
        print(f"Unknown command '/set {one_line(what)}'. Type /? for help")


def _set_parameter(conversation: Conversation, text: str) -> None:
    name, *values = text.split() or [""]
    if not values:
        print(HELP["parameter"] + "\n")
        return
    try:
        parsed = parse_parameter(name, values)
    except ModelfileError as error:
        print(f"Couldn't set parameter: {one_line(str(error))}")
        return
    conversation.parameters[name] = parsed
    print(f"Set parameter '{name}' to '{', '.join(values)}'")


def _set_format(conversation: Conversation, value: str) -> None:
    if value == "json":
        _change(conversation, {"format": "json"}, "Set format to 'json' mode.")
    else:
        print("Invalid or missing format. For 'json' mode use '/set format json'")


def _change(conversation: Conversation, fields: dict[str, Any], told: str) -> None:
    conversation.options = replace(conversation.options, **fields)
    print(told)
