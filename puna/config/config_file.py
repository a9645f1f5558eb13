"""Ollama's configuration file, as far as it is about KV memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import msgspec.yaml

from puna.config.quantities import parse_memory_limit

_GIB = 1 << 30


class _Kvcached(msgspec.Struct):
    enabled: bool | None = None
    memory_limit: int | float | str | None = None
    """A number counts GiB, as that of OLLAMA_KVCACHED_MEMORY_GB does."""
    eviction_policy: str | None = None


class _Config(msgspec.Struct):
    kvcached: _Kvcached | None = None


def read_config(path: Path) -> dict[str, Any]:
    """The fields of Settings that the file gives; none if it is not there.

    Raises ValueError, with the path, for a file that cannot be read or says what makes no sense.
    """
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    try:
        given = msgspec.yaml.decode(text)
        config = msgspec.convert(given, _Config | None)
        if config is None or config.kvcached is None:
            return {}
        _check_names(given["kvcached"])
        return _fields(config.kvcached)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{path}: {_one_line(error)}") from error


def _check_names(given: dict[Any, Any]) -> None:
    for name in given:
        if name not in _Kvcached.__struct_fields__:
            raise ValueError(f'kvcached: there is no "{name}", only {", ".join(_Kvcached.__struct_fields__)}')


def _fields(kvcached: _Kvcached) -> dict[str, Any]:
    policy = kvcached.eviction_policy
    if policy is not None and policy.lower() != "lru":
        raise ValueError(f'kvcached.eviction_policy: there is no policy "{policy}", only lru')
    fields: dict[str, Any] = {}
    if kvcached.enabled is not None:
        fields["elastic"] = kvcached.enabled
    if kvcached.memory_limit is not None:
        try:
            fields["kv_limit_bytes"] = parse_memory_limit(str(kvcached.memory_limit), unit=_GIB)
        except ValueError as error:
            raise ValueError(f"kvcached.memory_limit: {error}") from None
    return fields


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace(' in "<byte string>"', "")
