"""Tab completes the commands of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from puna.registry.modelfile.parameters import BOOLEANS, FLOATS, INTEGERS, TEXTS

_NO_WORDS: Mapping[str, Any] = {}
_SET = {
    "parameter": dict.fromkeys([*INTEGERS, *FLOATS, *BOOLEANS, *TEXTS, "stop"], _NO_WORDS),
    "format": {"json": _NO_WORDS},
    "think": dict.fromkeys(("low", "medium", "high", "max"), _NO_WORDS),
    **dict.fromkeys(("system", "history", "nohistory", "wordwrap", "nowordwrap", "noformat"), _NO_WORDS),
    **dict.fromkeys(("verbose", "quiet", "nothink"), _NO_WORDS),
}
_SHOW = ("info", "license", "modelfile", "parameters", "system", "template")
_COMMANDS = {
    "/set": _SET,
    "/show": dict.fromkeys(_SHOW, _NO_WORDS),
    "/help": dict.fromkeys(("set", "show", "shortcuts"), _NO_WORDS),
    **dict.fromkeys(("/load", "/save", "/list", "/clear", "/bye"), _NO_WORDS),
}


class CommandCompleter(Completer):
    """Knows the words that may follow each other; messages are not completed."""

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002
    ) -> Iterable[Completion]:
        *before, word = document.text_before_cursor.split(" ")
        following: Mapping[str, Any] = _COMMANDS
        for given in before:
            following = following.get(given, _NO_WORDS)
        if word or before:
            for known in sorted(following):
                if known.startswith(word):
                    yield Completion(known, start_position=-len(word))
