"""From the name a client sent to the model in the store."""

from __future__ import annotations

import asyncio

from puna.api.errors import ApiError
from puna.registry import ModelName, ModelNotFound, Store, StoredModel


def parse_name(text: str) -> ModelName:
    """The model that `text` means; a suffix `:local` is implied here, `:cloud` can't be served.

    ApiError (400, 403), InvalidModelName.
    """
    name = text.strip()
    lower = name.lower()
    tag = lower.rsplit("/", 1)[-1].rpartition(":")[2]
    is_cloud = lower.endswith(":cloud") or (":" in lower and tag.endswith("-cloud"))
    if lower.endswith((":local:cloud", ":cloud:local")):
        raise ApiError(400, f'use either :local or :cloud, not both: "{text}"')
    if is_cloud:
        raise ApiError(403, "ollama cloud is disabled: remote model is unavailable")
    return ModelName.parse(name[: -len(":local")] if lower.endswith(":local") else name)


async def find_model(store: Store, text: str, *, missing: ApiError | None = None) -> StoredModel:
    """The model that a request names; errors repeat the name as it was sent.

    missing: what is raised where there is none of that name, or no name, in place of the usual 404.

    ApiError (400, 403, 404), InvalidModelName, CorruptManifest, MissingBlob.
    """
    if missing is not None and not text:
        raise missing
    name = parse_name(text)
    if (found := store.find_again(name)) is not None:
        return found
    try:
        return await asyncio.to_thread(store.find, name)
    except ModelNotFound as error:
        raise missing or ApiError(404, f"model '{text}' not found") from error


def missing_model(model: str) -> ApiError:
    """For those who ask a model for vectors."""
    if not model:
        return ApiError(404, "model '' not found")
    return ApiError(404, f'model "{model}" not found, try pulling it first')
