"""What a Modelfile says, command by command."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from puna.registry.modelfile.errors import ModelfileError
from puna.registry.modelfile.grammar import Command, parse_commands
from puna.registry.modelfile.parameters import DEPRECATED, parse_parameter
from puna.registry.store.stored_model import StoredMessage

MAX_BYTES = 16 << 20
_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(
    rf"v?({_NUMBER}(?:\.{_NUMBER}(?:\.{_NUMBER}(?:-{_IDENTIFIERS})?(?:\+{_IDENTIFIERS})?)?)?)"
)


@dataclass(slots=True, kw_only=True)
class Modelfile:
    """Empty: not said. Files and models are as they are written there: nobody has looked for them."""

    sources: list[str] = field(default_factory=list)
    """What FROM names: models, or files and directories."""
    adapters: list[str] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    template: str = ""
    system: str = ""
    renderer: str = ""
    parser: str = ""
    requires: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    licenses: list[str] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """Names of parameters that mean nothing any more."""


def parse_modelfile(data: bytes) -> Modelfile:
    """Raises ModelfileError."""
    if len(data) > MAX_BYTES:
        raise ModelfileError(f"a Modelfile may have {MAX_BYTES} bytes at most")
    made = Modelfile()
    for command in parse_commands(data):
        _add(made, command)
    if not made.sources:
        raise ModelfileError("no FROM line")
    if draft := next((draft for draft in made.drafts if draft in made.sources), None):
        raise ModelfileError(f"DRAFT must not be what FROM is: {draft}")
    return made


def _add(made: Modelfile, command: Command) -> None:
    value = command.value
    match command.name:
        case "from":
            made.sources.append(value)
        case "adapter":
            made.adapters.append(value)
        case "draft":
            made.drafts.append(value)
        case "license":
            made.licenses.append(value)
        case "message":
            made.messages.append(StoredMessage(command.key, value))
        case "parameter":
            _add_parameter(made, command.key, value)
        case "requires":
            made.requires = parse_version(value)
        case text:
            setattr(made, text, value)


def _add_parameter(made: Modelfile, name: str, value: str) -> None:
    if name in DEPRECATED:
        made.ignored.append(name)
    elif name == "stop":
        made.parameters.setdefault("stop", []).append(value)
    else:
        made.parameters[name] = parse_parameter(name, [value])


def parse_version(text: str) -> str:
    """A semantic version without its `v`; what follows the first number may be missing. Raises
    ModelfileError.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ModelfileError("requires must be a valid semver (e.g. 0.14.0)")
    return match[1]
