"""Models that draft for others: held beside them, and gone without where that cannot be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from puna.backends.base import ModelInfo, ModelLoadError
from puna.daemon.models.loading import LoadedModel, ModelLoader
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.registry import ModelName, RegistryError, Store, StoredModel

log = logging.getLogger(__name__)


class DraftModels:
    """A request may name one; else it is the one that its model brings along, if that can be used."""

    def __init__(self, store: Store, loader: ModelLoader) -> None:
        self._store = store
        self._loader = loader
        self._useless: set[tuple[str, str]] = set()
        """(model, draft model) brought along that do not go together: the log has said it."""

    @asynccontextmanager
    async def hold(
        self, loaded: LoadedModel, model: StoredModel, name: str | None
    ) -> AsyncIterator[str | None]:
        """Its id; None if there is no room for it, none is wanted, or the model's engine has no use for it.
        Raises, if one is named, the registry's errors and ModelLoadError; WorkerDied.
        """
        if loaded.info.engine != "native":
            yield None
            return
        async with AsyncExitStack() as stack:
            draft = None
            if name is not None:
                named = await asyncio.to_thread(self._store.find, ModelName.parse(name))
                draft = await self._held(named, stack)
            elif (own := model.draft) is not None and not self._is_useless(loaded, own):
                draft = await self._own(loaded, own, stack)
            yield None if draft is None else draft.id

    def _is_useless(self, model: LoadedModel, draft: StoredModel) -> bool:
        """Also where it is a part of the model, whose hidden states it reads."""
        return model.info.has_drafter or (model.id, draft.weights_id) in self._useless

    async def _own(self, model: LoadedModel, draft: StoredModel, stack: AsyncExitStack) -> LoadedModel | None:
        try:
            found = await self._held(draft, stack)
            if found is None or _go_together(found.info, model.info):
                return found
            reason = "it has another vocabulary, or recurrent layers"
        except (ModelLoadError, RegistryError) as error:
            reason = str(error)
        log.warning("%s goes without its draft model: %s", model.model.name.short, reason)
        self._useless.add((model.id, draft.weights_id))
        return None

    async def _held(self, draft: StoredModel, stack: AsyncExitStack) -> LoadedModel | None:
        """Until the stack is closed; None: there is no room for it."""
        residency = self._loader.residency
        if residency.has_room(draft.weights_id):
            with suppress(ModelDoesNotFit):
                return await stack.enter_async_context(
                    residency.hold(draft.weights_id, lambda: self._loader.load(draft))
                )
        return None


def _go_together(draft: ModelInfo, model: ModelInfo) -> bool:
    """As the engine checks it of one that a request names."""
    return not draft.state_bytes and draft.vocab_size == model.vocab_size
