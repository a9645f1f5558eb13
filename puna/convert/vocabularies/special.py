"""Special tokens, whether they are added to texts, and chat templates: from tokenizer_config.json and others.

Where files disagree, the post-processor of tokenizer.json says what is added, and tokenizer_config.json, then
config.json, which token plays a part, as in llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # as GGUF spells it
    "pad": "padding_token_id",
    "mask": "mask_token_id",
}
_ADDED = ("bos", "eos", "sep")


def special_values(
    files: Files,
    config: Config,
    vocabulary: Vocabulary,
    tokenizer: TokenizerJson | None,
    size: int,
    known: Mapping[str, str],
) -> dict[str, GgufValue]:
    """Metadata; size: of the vocabulary. known: tokens by their parts, whatever files say. Raises
    ConversionError.
    """
    settings = files.object(CONFIG) | {f"{role}_token": text for role, text in known.items()}
    added = {} if tokenizer is None else _added(settings, tokenizer)
    for role in _ADDED:
        if isinstance(says := settings.get(f"add_{role}_token"), bool):
            added.setdefault(role, says)
    values = {f"tokenizer.ggml.add_{role}_token": boolean(adds) for role, adds in added.items()}
    ids = {token.text: number for number, token in vocabulary.tokens.items()}
    if tokenizer is not None:
        ids |= {added.content: added.id for added in tokenizer.added_tokens}
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


def _added(settings: dict[str, Any], tokenizer: TokenizerJson) -> dict[str, bool]:
    """Which roles' tokens are added to a text. Settles in `settings` which tokens begin and end one, as the
    reference does.
    """
    for role, other in (("bos", "cls"), ("eos", "sep")):
        if not settings.get(f"{role}_token") and settings.get(f"{other}_token"):
            settings[f"{role}_token"] = settings[f"{other}_token"]
    added: dict[str, bool] = {}
    for part in parts(tokenizer.post_processor, "processors"):
        if part.get("type") == "ByteLevel":
            added = {"bos": False, "eos": False} | added
        elif part.get("type") == "RobertaProcessing":
            added |= {"bos": True, "eos": True, "sep": True}
        elif part.get("type") == "TemplateProcessing":
            added |= _in_template(_specials(part.get("single")), _specials(part.get("pair")), settings)
    return added


def _specials(template: Any) -> list[str | None]:
    """Of the pieces of a template its special tokens; None for a text."""
    pieces = template if isinstance(template, list) else []
    found = [piece.get("SpecialToken") if isinstance(piece, dict) else None for piece in pieces]
    return [
        _content({"content": special.get("id")}) if isinstance(special, dict) else None for special in found
    ]


def _in_template(
    single: list[str | None], pair: list[str | None], settings: dict[str, Any]
) -> dict[str, bool]:
    """Special tokens at the ends of a text, and between two."""
    added: dict[str, bool] = {}
    if len(single) < 2:
        return added
    first, last = single[0], single[-1]
    if first is not None:
        for role in ("bos", "cls"):
            settings.setdefault(f"{role}_token", first)
        added["bos"] = first in (_content(settings["bos_token"]), _content(settings["cls_token"]))
    if last is not None:
        if (eos := settings.get("eos_token")) and _content(eos) != last:
            settings["eot_token"] = eos
        settings["eos_token"] = last
        added["eos"] = True
    between = pair[1 if first else 0 : -1 if last else None][1:-1]
    if between:
        ends = [_content(settings.get(f"{role}_token")) for role in ("sep", "eos")]
        added["sep"] = between[0] in ends and last is None
        if len(between) == 2:
            added["sep"] = added["sep"] or between[1] in ends
    return added


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
