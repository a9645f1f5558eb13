"""References within a schema."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import Node

_MAX_CHARS = 1000


def resolve(reference: Any, root: Node, path: str) -> Any:
    """What it points to within the schema, by a JSON pointer (RFC 6901) or an anchor. Raises PromptError."""
    if not isinstance(reference, str) or len(reference) > _MAX_CHARS:
        raise PromptError(f"the schema's '$ref' at {path} is not a text of {_MAX_CHARS} characters at most")
    base, _, fragment = reference.partition("#")
    if base and base != str(root.get("$id", root.get("id"))).rstrip("#"):
        raise PromptError(
            f"the schema's '$ref' at {path} is to another document, {reference[:200]!r}, which is not fetched"
        )
    pointer = unquote(fragment)
    is_pointer = not pointer or pointer.startswith("/")
    target = _follow(pointer, root) if is_pointer else _anchored(pointer, root)
    if target is None:
        raise PromptError(f"the schema's '$ref' at {path} is to {reference[:200]!r}, which is not in it")
    return target


def _follow(pointer: str, root: Node) -> Any:
    target: Any = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, dict) and name in target:
            target = target[name]
        elif name or target is not root:  # "#/" is what some write for the whole
            return None
    return target


def _anchored(anchor: str, root: Node) -> Any:
    waiting: list[Any] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if (
                anchor in (value.get("$anchor"), value.get("$dynamicAnchor"))
                or value.get("$id") == f"#{anchor}"
            ):
                return value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return None
