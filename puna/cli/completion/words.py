"""The words with which a command line could go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from puna.cli.completion.model_names import model_names

_MODELS = ("MODEL", "PREFIX", "SOURCE")
"""How usage texts call arguments that are names of models."""


def completions(command: Any, words: Sequence[str]) -> list[str]:
    """command: the typer command of the whole program; words: after its name, the last one unfinished."""
    *before, unfinished = words or [""]
    arguments: list[str] = []
    for word in before:
        if word in getattr(command, "commands", {}):
            command, arguments = command.commands[word], []
        elif not word.startswith("-"):
            arguments.append(word)
    found = _flags(command) if unfinished.startswith("-") else _words(command, len(arguments))
    return sorted({word for word in found if word.lower().startswith(unfinished.lower())})


def _flags(command: Any) -> Iterator[str]:
    yield "--help"
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield from (name for name in parameter.opts if name.startswith("--"))


def _words(command: Any, num_arguments: int) -> Iterator[str]:
    if commands := getattr(command, "commands", {}):
        yield from (name for name, each in commands.items() if not each.hidden)
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    if not arguments:
        return
    argument = arguments[min(num_arguments, len(arguments) - 1)]
    if num_arguments < len(arguments) or argument.nargs == -1:
        metavar = argument.metavar or ""
        if "|" in metavar:  # as bash|zsh|fish
            yield from metavar.split("|")
        elif metavar in _MODELS:
            yield from model_names()
