"""Special tokens, whether they are added to texts, and chat templates: from tokenizer_config.json and others.

Where files disagree, the post-processor of tokenizer.json says what is added, and tokenizer_config.json, then
config.json, which token plays a part, as in llama.cpp's converter.
"""

from __future__ import annotations

from typing import Any

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.sources.files import Files
from puna.convert.vocabularies.tokenizer_json import TokenizerJson, parts
from puna.convert.vocabularies.vocabulary import Vocabulary
from puna.gguf.writer import GgufValue, boolean, string, strings, uint32

CONFIG = "tokenizer_config.json"
_MAX_TEMPLATE_BYTES = 4 << 20

_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # as GGUF spells it
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}
_ADDED = ("bos", "eos", "sep")


def special_values(
    files: Files, config: Config, vocabulary: Vocabulary, tokenizer: TokenizerJson | None, size: int
) -> dict[str, GgufValue]:
    """Metadata; size: of the vocabulary. Raises ConversionError."""
    settings = files.object(CONFIG)
    added = _added(settings, tokenizer)
    values = {f"tokenizer.ggml.add_{role}_token": boolean(adds) for role, adds in added.items()}
    ids = {token.text: number for number, token in vocabulary.tokens.items()}
    for role, key in _ROLES.items():
        content = _content(settings.get(f"{role}_token"))
        token = None if content is None else ids.get(content)
        if token is None:
            token = config.token_id(f"{role}_token_id")
        if token is not None and token < size:
            values[f"tokenizer.ggml.{key}"] = uint32(token)
    return values | _templates(files, settings)


def _content(entry: Any) -> str | None:
    """A special token is a text, or an object that has it."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None


def _added(settings: dict[str, Any], tokenizer: TokenizerJson | None) -> dict[str, bool]:
    added: dict[str, bool] = {}
    if tokenizer is not None:
        for part in parts(tokenizer.post_processor, "processors"):
            if part.get("type") == "ByteLevel":
                added = {"bos": False, "eos": False} | added
            elif part.get("type") == "TemplateProcessing":
                added |= _in_template(part.get("single"), settings)
    for role in _ADDED:
        says = settings.get(f"add_{role}_token")
        if isinstance(says, bool):
            added.setdefault(role, says)
    return added


def _in_template(single: Any, settings: dict[str, Any]) -> dict[str, bool]:
    """Special tokens at the ends of what is made of a text."""
    if not isinstance(single, list) or len(single) < 2:
        return {}
    found = {}
    for role, piece in (("bos", single[0]), ("eos", single[-1])):
        special = piece.get("SpecialToken") if isinstance(piece, dict) else None
        if isinstance(special, dict):
            found[role] = special.get("id") == _content(settings.get(f"{role}_token"))
    return found


def _templates(files: Files, settings: dict[str, Any]) -> dict[str, GgufValue]:
    template = settings.get("chat_template")
    if template is None and "chat_template.jinja" in files:
        template = files.read("chat_template.jinja", _MAX_TEMPLATE_BYTES).decode(errors="replace")
    elif template is None:
        template = files.object("chat_template.json").get("chat_template")
    if isinstance(template, str):
        return {"tokenizer.chat_template": string(template)}
    if not isinstance(template, list):
        return {}
    values: dict[str, GgufValue] = {}
    names = []
    for entry in template:
        name, text = (
            (entry.get(key) for key in ("name", "template")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(text, str):
            raise ConversionError(f"{CONFIG}: chat_template has an entry without name or template")
        if name == "default":
            values["tokenizer.chat_template"] = string(text)
        else:
            names.append(name)
            values[f"tokenizer.chat_template.{name[:100]}"] = string(text)
    return values | ({"tokenizer.chat_templates": strings(names)} if names else {})
