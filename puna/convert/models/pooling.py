"""What becomes of an encoder's hidden states: an embedding, as sentence-transformers say it, or a rank."""

from __future__ import annotations

from typing import Any

import msgspec

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family
from puna.convert.sources.files import Files
from puna.gguf.writer import GgufValue, strings, uint32

_MODULES = "modules.json"
_KINDS = {"mean": 1, "cls": 2, "lasttoken": 3}
_FLAGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
_RANK = 4
_STEPS = ("Transformer", "Pooling", "Normalize")
_RANKS = "ForSequenceClassification"


class _Module(msgspec.Struct):
    type: str = ""
    path: str = ""


def pooling_values(files: Files, config: Config, family: Family) -> dict[str, GgufValue]:
    """Metadata. Raises ConversionError."""
    values: dict[str, GgufValue] = {}
    kind = _RANK if config.model_class.endswith(_RANKS) else _of_modules(files)
    if kind is not None:
        values["pooling_type"] = uint32(kind)
    if config.has("classifier_pooling"):
        values["classifier.pooling_type"] = uint32(_number(config.text("classifier_pooling")))
    labels = config.labels("id2label") or []
    if labels and not (len(labels) == 2 and labels[0] == "LABEL_0"):  # which say nothing
        values["classifier.output_labels"] = strings(labels)
    return {f"{family.architecture}.{name}": value for name, value in values.items()}


def _of_modules(files: Files) -> int | None:
    """None: nothing says it."""
    modules = files.json(_MODULES, list[_Module]) if _MODULES in files else []
    for module in modules:
        if not module.type.endswith(_STEPS):
            raise ConversionError(f"{module.type[:100]!r}, which {_MODULES} names, is not supported")
    path = next((module.path for module in modules if module.type.endswith("Pooling")), None)
    if path is None:
        return None
    name = f"{path}/config.json"
    if name not in files:
        raise ConversionError(f"{name[:100]!r}, which {_MODULES} names, is missing")
    said: dict[str, Any] = files.json(name, dict[str, Any])
    flags = [name for name, value in said.items() if name.startswith("pooling_mode_") and value is True]
    if len(flags) > 1 or not _FLAGS.keys() >= set(flags):
        raise ConversionError(
            f"of {name[:100]!r} one of {', '.join(_FLAGS)} is supported, not {flags!r:.200}"
        )
    if flags:
        return _FLAGS[flags[0]]
    return _number(said.get("pooling_mode"))


def _number(kind: Any) -> int:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConversionError(f"only {', '.join(_KINDS)} are known as ways to pool")
    return _KINDS[kind]
