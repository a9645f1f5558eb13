"""Writing a Modelfile, so that reading it gives the same again.

No text becomes a command, whatever is in it. What no Modelfile can say is changed: characters that cannot be
printed go, and where a line within a text ends with three quotes they are moved apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from puna.registry.modelfile.grammar import ROLES, printable
from puna.registry.modelfile.modelfile import Modelfile
from puna.registry.modelfile.parameters import each_value, written_value

_PARAMETER = re.compile(r"[A-Za-z0-9_]+")
_CLOSING = re.compile(r'""(?="[ \t]*[\r\n])')


def written(modelfile: Modelfile) -> str:
    """The text, which ends with a newline; parameters and messages that cannot be written are left out."""
    return "".join(f"{line}\n" for line in _lines(modelfile))


def _lines(made: Modelfile) -> Iterator[str]:
    first, *others = made.sources
    yield f"FROM {_quoted(first)}"
    for command, values in (("ADAPTER", made.adapters), ("DRAFT", made.drafts), ("FROM", others)):
        yield from (f"{command} {_quoted(value)}" for value in values)
    for command in ("template", "system", "renderer", "parser", "requires"):
        if value := getattr(made, command):
            yield f"{command.upper()} {_quoted(value)}"
    for name, value in each_value(made.parameters):
        if _PARAMETER.fullmatch(name) and isinstance(value, str | int | float):
            yield f"PARAMETER {name} {_quoted(written_value(value))}"
    yield from (f"LICENSE {_quoted(text)}" for text in made.licenses)
    for message in made.messages:
        if message.role in ROLES:
            yield f"MESSAGE {message.role} {_quoted(message.content)}"


def _quoted(text: str) -> str:
    """In quotes if something else would be read without them."""
    text = printable(text)
    if text and not re.search(r"[\r\n]", text) and text == text.strip(" \t") and not text.startswith('"'):
        return text
    if '"' not in text:
        return f'"{text}"'
    apart = _CLOSING.sub('"" ', text)
    return f'"""{apart}"""'
