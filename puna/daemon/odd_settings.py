"""Warnings of settings that are valid, but can hardly be meant so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from puna.config.memory import total_bytes
from puna.config.settings import Settings
from puna.config.sizes import binary_size
from puna.kv.files.state_directory import StateDirectory
from puna.registry import ModelName, ModelNotFound, RegistryError, Store
from puna.registry.name import DEFAULT_TAG


def odd_limits(kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> list[str]:
    """Limits beyond what the machine has; None: not asked for."""
    machine = total_bytes()
    limits = (("KV", kv_limit_bytes), ("all memory", memory_limit_bytes))
    return [
        f"the limit of {what}, {binary_size(limit)}, is more than this machine has: {binary_size(machine)}"
        for what, limit in limits
        if limit is not None and 0 < machine < limit
    ]


def odd_settings(settings: Settings, store: Store) -> list[str]:
    """Takes a while: looks at files. Raises InvalidModelName."""
    limits = odd_limits(settings.kv_limit_bytes, settings.memory_limit_bytes)
    return [*limits, *_odd_directory(settings), *_odd_models(settings, store)]


def _odd_directory(settings: Settings) -> Iterator[str]:
    """PUNA_KV_DIR if nothing can be kept there. It is made if it is not there."""
    if settings.kv_disk_bytes == 0 or settings.cache_policy != "prefix" or not settings.elastic:
        return
    try:
        StateDirectory.open(settings.kv_dir)
        if not os.access(settings.kv_dir, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(0, "Permission denied")
    except FileExistsError:
        yield f"PUNA_KV_DIR: no prefix is kept on disk: {settings.kv_dir} is not a directory"
    except OSError as error:
        yield f"PUNA_KV_DIR: no prefix is kept on disk: {settings.kv_dir}: {error.strerror or error}"


def _odd_models(settings: Settings, store: Store) -> Iterator[str]:
    """Names of no model. It may be pulled later, or its name has a typing error."""
    named = (("PUNA_MODEL_KV_MIN", settings.kv_guarantees), ("PUNA_MODEL_SHARES", settings.model_shares))
    for variable, values in named:
        for text, _ in values:
            name = ModelName.parse(text)
            if not _is_there(name, store):
                similar = " or ".join(_similar(name, store))
                hint = f" (do you mean {similar}?)" if similar else ""
                yield f"{variable}: there is no model {name.short} yet{hint}"


def _is_there(name: ModelName, store: Store) -> bool:
    with suppress(RegistryError):
        try:
            store.find(name)
        except ModelNotFound:
            return False
    return True


def _similar(name: ModelName, store: Store) -> list[str]:
    """Models of that name in other namespaces, and with other tags if none was given."""
    tag = name.tag.lower()
    return [
        other.name.short
        for other in store.list()
        if other.name.model.lower() == name.model.lower()
        and (other.name.tag.lower() == tag or tag == DEFAULT_TAG)
    ]
