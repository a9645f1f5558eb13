"""Flags as Go's programs take them: `--think` and `--think=high`, `--verbose` and `--verbose=false`."""

from __future__ import annotations

_OF_OPTIONAL_VALUE = ("--think", "--truncate")
"""A word after them belongs to the prompt."""
_BOOLEAN = ("--verbose", "--insecure", "--nowordwrap", "--hidethinking")
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def as_typer_takes_them(arguments: list[str]) -> list[str]:
    """The same arguments; what comes after `--` is left alone."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [word for argument in arguments[:end] for word in _words(argument)] + arguments[end:]


def _words(argument: str) -> list[str]:
    if argument in _OF_OPTIONAL_VALUE:
        return [f"{argument}=true"]
    name, _, value = argument.partition("=")
    if name in _BOOLEAN and value in _TRUE:
        return [name]
    return [] if name in _BOOLEAN and value in _FALSE else [argument]
