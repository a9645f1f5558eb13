"""`puna models`: how each stored model runs here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from puna.backends.base import BLOCK_TOKENS, ModelLoadError
from puna.cli.models.inspection import growing_bytes, inspect_model, server_instead, settled_bytes
from puna.cli.output.json import print_json
from puna.cli.output.table import table
from puna.config.settings import Settings
from puna.config.sizes import binary_size
from puna.gguf import GgufError, read_metadata
from puna.models.measured import Measured, measured
from puna.registry import Store
from puna.registry.store.stored_model import ModelEntry

_NATIVE, _OTHER = "native", "llama.cpp"


class ModelOverview(msgspec.Struct, frozen=True, kw_only=True):
    """How a model runs, and what was measured of models of its kind."""

    name: str
    architecture: str = ""
    tokenizer: str = ""
    engine: str = ""
    """Which engine is asked to run it; "": none."""
    reason: str = ""
    """Why puna's own cannot."""
    checks: str = ""
    """Tests of the architecture that pass."""
    prefill: float | None = None
    """Tokens per second over llama.cpp's, measured on random weights."""
    decode: float | None = None
    kv_bytes_per_token: int | None = None
    fixed_kv_bytes: int | None = None
    """Of windows and states, at most."""


def print_overview(prefix: str, settings: Settings, *, as_json: bool) -> None:
    """Of the stored models whose names start with `prefix`; as a table, or as JSON."""
    store, known = Store.default(), measured()
    entries = [entry for entry in store.list() if entry.name.short.lower().startswith(prefix.lower())]
    overviews = [_overview(entry, settings, known) for entry in entries]
    if as_json:
        print_json({"models": msgspec.to_builtins(overviews)})
        return
    header = [
        "NAME",
        "ARCHITECTURE",
        "TOKENIZER",
        "ENGINE",
        "CHECKS",
        "PREFILL",
        "DECODE",
        "KV/TOKEN",
        "FIXED KV",
    ]
    print(table([header, *(_row(one) for one in overviews)]))
    for line in _reasons(overviews):
        print(line)


def _overview(entry: ModelEntry, settings: Settings, known: dict[str, Measured]) -> ModelOverview:
    name = entry.name.short
    try:
        architecture, tokenizer = _described(entry.model_path, name)
        info = inspect_model(entry.model_path, settings)
    except (GgufError, OSError) as error:
        return ModelOverview(name=name, reason=str(error))
    except ModelLoadError as error:
        engine = _OTHER if server_instead(error, settings) else ""
        return ModelOverview(
            name=name, architecture=architecture, tokenizer=tokenizer, engine=engine, reason=str(error)
        )
    found = known.get(architecture)
    return ModelOverview(
        name=name,
        architecture=architecture,
        tokenizer=tokenizer,
        engine=_NATIVE,
        checks=_checks(found) if found else "",
        prefill=found.prefill if found else None,
        decode=found.decode if found else None,
        kv_bytes_per_token=growing_bytes(info) // BLOCK_TOKENS,
        fixed_kv_bytes=settled_bytes(info),
    )


def _described(path: Path, name: str) -> tuple[str, str]:
    """(architecture, tokenizer and what splits text before it)"""
    with path.open("rb") as file:
        metadata = read_metadata(file.fileno(), name)
        parts = [metadata.get(f"tokenizer.ggml.{key}", "") for key in ("model", "pre")]
        return str(metadata.get("general.architecture", "")), "/".join(str(part) for part in parts if part)


def _checks(found: Measured) -> str:
    passed, of = (a + b for a, b in zip(found.oracle, found.batches, strict=True))
    return f"{passed} of {of}"


def _row(one: ModelOverview) -> list[str]:
    ratios = ["" if value is None else f"{value:.1f}x" for value in (one.prefill, one.decode)]
    sizes = [
        "" if value is None else binary_size(value) for value in (one.kv_bytes_per_token, one.fixed_kv_bytes)
    ]
    return [one.name, one.architecture, one.tokenizer, one.engine or "-", one.checks, *ratios, *sizes]


def _reasons(overviews: list[ModelOverview]) -> Iterator[str]:
    for one in overviews:
        if one.reason:
            yield f"{one.name}: {one.reason}"
