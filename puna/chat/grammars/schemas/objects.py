"""Keywords about the properties of objects, in the forms that llguidance knows."""

from __future__ import annotations

from typing import Any

from puna.chat.errors import PromptError
from puna.chat.grammars.schemas.keywords import MERGED, OF_OBJECTS, Node

_MAX_VALUES = 500_000
_MAX_DEPTH = 100
"""Of JSON; llguidance reads what is nested 128 times."""

Refusal = tuple[str, str]
"""A keyword that cannot be enforced, and why."""


def merges(root: Node) -> bool:
    """Whether schemas of one object come together from several places somewhere in it: what one of them does
    not know, another may. Raises PromptError.
    """
    waiting: list[tuple[Any, int]] = [(root, 0)]
    num_values, has_merged = 0, False
    while waiting:
        value, depth = waiting.pop()
        num_values += 1
        if num_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise PromptError(
                f"the schema has over {_MAX_VALUES} values, or is nested over {_MAX_DEPTH} times"
            )
        if isinstance(value, dict):
            has_merged = has_merged or _merges_here(value)
            waiting += [(part, depth + 1) for part in value.values()]
        elif isinstance(value, list):
            waiting += [(part, depth + 1) for part in value]
    return has_merged


def _merges_here(node: Node) -> bool:
    all_of = node.get("allOf")
    merged = [key for key in MERGED if key in node]
    return (
        (isinstance(all_of, list) and len(all_of) > 1)
        or len(merged) > 1
        or (bool(merged) and any(key in node for key in OF_OBJECTS))
    )


def normalise(node: Node, *, closes: bool) -> list[Refusal]:
    """Changes it in place: propertyNames and unevaluatedProperties become other keywords.

    closes: an object that declares its properties has no others unless it says so, as in llama.cpp.
    """
    refusals = _names(node) + _unevaluated(node)
    properties = node.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    required = _required(node)
    is_open = "additionalProperties" in node or "patternProperties" in node
    if properties and closes and not is_open:
        node["properties"] = properties = {
            **properties,
            **{name: True for name in required if name not in properties},
        }
        node["additionalProperties"] = False
    return refusals + _counts(node, properties, required)


def _required(node: Node) -> list[str]:
    """Draft 3 has a boolean within properties, which nobody means any more."""
    required = node.get("required")
    if not isinstance(required, list):
        node.pop("required", None)
        return []
    node["required"] = names = list(dict.fromkeys(map(str, required)))
    return names


def _names(node: Node) -> list[Refusal]:
    names = node.pop("propertyNames", True)
    if names is True:
        return []
    rules = (
        {key: value for key, value in names.items() if key != "type"}
        if isinstance(names, dict)
        else {"": names}
    )
    free = node.get("additionalProperties", True)
    if not rules:
        return []
    if "properties" in node or "patternProperties" in node or len(rules) > 1:
        return [("propertyNames", "beside properties, or with several keywords")]
    match rules:
        case {"enum": [*allowed]} if all(isinstance(name, str) for name in allowed):
            node["properties"] = dict.fromkeys(allowed, free)
        case {"const": str(name)}:
            node["properties"] = {name: free}
        case {"pattern": str(pattern)}:
            node["patternProperties"] = {pattern: free}
        case _:
            return [("propertyNames", "only with enum, const or pattern")]
    node["additionalProperties"] = False
    return []


def _unevaluated(node: Node) -> list[Refusal]:
    unevaluated = node.pop("unevaluatedProperties", True)
    if unevaluated is True:
        return []
    if any(key in node for key in MERGED):
        return [("unevaluatedProperties", "beside " + ", ".join(MERGED))]
    node.setdefault("additionalProperties", unevaluated)
    return []


def _counts(node: Node, properties: dict[str, Any], required: list[str]) -> list[Refusal]:
    """Names of properties that are not declared may come twice, so they cannot be counted."""
    is_closed = node.get("additionalProperties") is False and "patternProperties" not in node
    if node.get("minProperties", 0) <= len(required):
        node.pop("minProperties", None)
    if is_closed and node.get("maxProperties", len(properties)) >= len(properties):
        node.pop("maxProperties", None)
    fewest, most = node.get("minProperties", 0), node.get("maxProperties")
    num_optional = sum(name not in required for name in properties)
    if num_optional and (fewest or most is not None):
        at_least_one = fewest - len(required) <= 1 and (most is None or most - len(required) == 1)
        if is_closed and at_least_one:
            return []
        node.pop("minProperties", None)
        node.pop("maxProperties", None)
        return [("minProperties" if fewest else "maxProperties", "beside properties that may be left out")]
    if fewest > len(required) + 1:
        node["minProperties"] = len(required) + 1
        return [("minProperties", "names that are not declared may come twice")]
    return []
