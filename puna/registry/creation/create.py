"""Making a model: of another one, of uploaded files, and of what is said beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing

import msgspec

from puna.registry.creation.assembling import AssembledLayer, assemble
from puna.registry.creation.config import config_of
from puna.registry.creation.gathering import Gathering
from puna.registry.creation.parts import FILE_KINDS, Part
from puna.registry.creation.recipe import Recipe
from puna.registry.creation.texts import text_parts
from puna.registry.creation.tools import Tools
from puna.registry.digest import parse_digest
from puna.registry.errors import MissingBlob, ModelNotFound
from puna.registry.in_thread import in_thread
from puna.registry.local.local_model import LocalModel
from puna.registry.progress import Progress
from puna.registry.store.manifest import ModelConfig
from puna.registry.store.origin import Origin, read_origin
from puna.registry.store.store import Store
from puna.registry.store.stored_model import StoredModel

_WEIGHTS = (".gguf", ".safetensors", ".bin")


async def create(store: Store, recipe: Recipe, tools: Tools) -> AsyncGenerator[Progress, None]:
    """Creates or replaces the model. What is wrong with the recipe by itself is raised before any status.

    Closing the generator cancels; then, and after an error, the store is as it was, but for a model that has
    been pulled and for uploads.
    Raises CreationError, QuantizationError, MissingBlob, GgufError, StoreError, PullError.
    """
    recipe.check()
    for digest in (*recipe.files.values(), *recipe.adapters.values(), *recipe.draft_files.values()):
        if not store.has_blob(digest):
            raise MissingBlob(digest)
    await tools.check_templates(recipe.template, recipe.renderer, recipe.parser)
    scratch = ExitStack()
    making = _Making(store, recipe, tools, scratch)
    try:
        for step in (making.find_base, making.gather, making.finish):
            async with aclosing(step()) as statuses:
                async for progress in statuses:
                    yield progress
    finally:
        await asyncio.to_thread(scratch.close)


class _Making:
    """Of one model, in steps that follow each other."""

    def __init__(self, store: Store, recipe: Recipe, tools: Tools, scratch: ExitStack) -> None:
        self._store = store
        self._recipe = recipe
        self._tools = tools
        self._gathering = Gathering(store, tools, scratch)
        self._base: StoredModel | None = None

    async def find_base(self) -> AsyncGenerator[Progress, None]:
        """Pulls it if it is not there."""
        if (name := self._recipe.base) is None:
            return
        try:
            self._base = await asyncio.to_thread(self._store.find, name)
            return
        except ModelNotFound:
            pass
        async with aclosing(self._tools.pull(name)) as statuses:
            async for progress in statuses:
                if progress.status != "success":  # which is how clients know that the model has been created
                    yield progress
        self._base = await asyncio.to_thread(self._store.find, name)

    async def gather(self) -> AsyncGenerator[Progress, None]:
        """The files."""
        recipe, gathering = self._recipe, self._gathering
        steps = []
        if self._base is not None:
            given = {"adapter": recipe.adapters, "draft": recipe.draft_files}
            kinds = [kind for kind in FILE_KINDS if not given.get(kind)]
            steps.append(gathering.inherit(self._base, kinds, recipe.quantize))
        else:
            steps.append(gathering.add(recipe.files, "model", recipe.quantize))
        if recipe.adapters:
            steps.append(gathering.add(recipe.adapters, "adapter"))
        if recipe.draft_files:
            steps.append(gathering.add(recipe.draft_files, "draft", recipe.draft_quantize))
        for step in steps:
            async with aclosing(step) as statuses:
                async for progress in statuses:
                    yield progress

    async def finish(self) -> AsyncGenerator[Progress, None]:
        """Writes all of it."""
        texts = await asyncio.to_thread(text_parts, self._recipe, self._base)
        parts = [*self._gathering.parts, *texts]
        config = self._config()
        for layer, is_new in await in_thread(lambda _: self._write(config, parts)):
            yield Progress(f"{'creating new' if is_new else 'using existing'} layer {layer.digest}")
        yield Progress("writing manifest")
        yield Progress("success")

    def _config(self) -> ModelConfig:
        weights, recipe = self._gathering.weights, self._recipe
        if self._base is None or isinstance(self._base, LocalModel):
            assert weights is not None
            config = config_of(weights, self._gathering.companions)
        elif weights is not None:
            config = msgspec.structs.replace(self._base.config, quantization=config_of(weights).quantization)
        else:
            config = self._base.config
        said = {name: getattr(recipe, name) for name in ("renderer", "parser", "requires")}
        fields = {**recipe.config, **{name: value for name, value in said.items() if value}}
        return msgspec.structs.replace(config, **fields)

    def _write(self, config: ModelConfig, parts: list[Part]) -> list[AssembledLayer]:
        store, recipe = self._store, self._recipe
        with store.exclusive():
            made = assemble(
                store, recipe.name, config, parts, spent=self._gathering.spent, prunes=self._tools.prunes
            )
            weights = parse_digest(next(each.layer.digest for each in made if each.layer.kind == "model"))
            if recipe.base is None and read_origin(store.root, weights) is None:
                name = min(recipe.files, key=lambda name: (not name.endswith(_WEIGHTS), name))
                store.write_origin(weights, Origin(source=f"file:{name[:255]}"))
        return made
