"""The layers of text that a new model has."""

from __future__ import annotations

from puna.registry.creation.go_json import go_json
from puna.registry.creation.parts import Part, inherited
from puna.registry.creation.recipe import Recipe
from puna.registry.errors import CreationError
from puna.registry.store.model_reader import (
    MAX_PARAMS_BYTES,
    MAX_TEXT_BYTES,
    MAX_TEXT_LAYERS,
    MAX_TEXTS_BYTES,
)
from puna.registry.store.stored_model import StoredModel

_KINDS = ("template", "prompt", "system", "license", "params", "messages")


def text_parts(recipe: Recipe, base: StoredModel | None) -> list[Part]:
    """Those of `base`, but for what the recipe replaces or adds to. Raises CreationError for more than the
    store reads again.
    """
    new = _new_parts(recipe, base)
    replaced = {part.kind for part in new} - {"license"}
    if "template" in replaced:
        replaced.add("prompt")
    kept = [] if base is None else inherited(base, [kind for kind in _KINDS if kind not in replaced])
    _check_sizes(kept, new, base)
    return kept + new


def _new_parts(recipe: Recipe, base: StoredModel | None) -> list[Part]:
    """What stays as it is, is not among them."""
    params, messages = (base.params, base.messages) if base else ({}, [])
    new_params = {**params, **recipe.parameters}
    new_messages = list(recipe.messages) or messages
    made = {
        "template": recipe.template.encode(),
        "system": recipe.system.encode(),
        "params": go_json(new_params) if new_params != params else b"",
        "messages": go_json(new_messages) if new_messages != messages else b"",
    }
    licenses = [text for text in recipe.licenses if base is None or text not in base.licenses]
    return [
        *(Part(kind, content) for kind, content in made.items() if content),
        *(Part("license", text.encode()) for text in licenses),
    ]


def _check_sizes(kept: list[Part], new: list[Part], base: StoredModel | None) -> None:
    if len(kept) + len(new) > MAX_TEXT_LAYERS:
        raise CreationError(f"{len(kept) + len(new)} texts are more than a model may have")
    sizes = {layer.digest: layer.size for layer in base.manifest.layers} if base else {}
    total = sum(sizes.get(str(part.blob), 0) for part in kept)
    for part in new:
        assert isinstance(part.blob, bytes)
        total += len(part.blob)
        limit = MAX_PARAMS_BYTES if part.kind == "params" else MAX_TEXT_BYTES
        if len(part.blob) > limit:
            raise CreationError(f"the {part.kind} has {len(part.blob)} bytes, where {limit} are allowed")
    if total > MAX_TEXTS_BYTES:
        raise CreationError(f"the model's texts have {total} bytes, where {MAX_TEXTS_BYTES} are allowed")
