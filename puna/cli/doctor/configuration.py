"""What is configured: variables, the address, the store."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from puna.cli.client import Client, is_local
from puna.cli.doctor.findings import Finding
from puna.cli.errors import CliError, NotRunning
from puna.config.settings import SYSTEM_MODELS, Settings
from puna.config.sizes import human_size
from puna.config.variables import VARIABLES
from puna.daemon.odd_settings import odd_settings
from puna.registry import RegistryError, Store

_PREFIXES = ("OLLAMA_", "PUNA_")
_OF_OLLAMA = frozenset(
    [
        *("OLLAMA_NOPRUNE", "OLLAMA_DEBUG_LOG_REQUESTS", "OLLAMA_FLASH_ATTENTION", "OLLAMA_GPU_OVERHEAD"),
        *("OLLAMA_SCHED_SPREAD", "OLLAMA_LLM_LIBRARY", "OLLAMA_VULKAN", "OLLAMA_IGPU_ENABLE"),
        *("OLLAMA_MAX_TRANSFER_STREAMS", "OLLAMA_NO_CLOUD", "OLLAMA_REMOTES", "OLLAMA_AUTH"),
    ]
)
"""Ollama's that mean nothing, or nothing yet, to the table of variables."""
_LITTLE_SPACE = 5 << 30
_TIMEOUT_S = 3.0


def setting_findings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Variables that are set: valid, doubtful, or nobody's."""
    area, num_given = "Settings", 0
    known = {variable.name for variable in VARIABLES} | _OF_OLLAMA
    for name in sorted(environ):
        if name in known:
            num_given += 1
        elif name.startswith(_PREFIXES):
            similar = difflib.get_close_matches(name, known, 1)
            advice = f"do you mean {similar[0]}?" if similar else "nothing reads it"
            yield Finding(area=area, name=name, text="not known", level="warning", advice=advice)
    yield Finding(area=area, name="variables", text=f"{num_given} given")
    for warning in settings.warnings:
        yield Finding(area=area, name="value", text=warning, level="warning")
    try:
        doubts = odd_settings(settings, Store(settings.models, settings.read_only_models))
    except RegistryError as error:
        yield Finding(area=area, name="value", text=str(error), level="error")
    else:
        for doubt in doubts:
            yield Finding(area=area, name="value", text=doubt, level="warning")


def server_finding(settings: Settings) -> Finding:
    """Who answers at the address."""
    area, name, host = "Server", "address", settings.host
    try:
        with Client(host, timeout_s=_TIMEOUT_S) as client:
            reply = client.get("/api/version")
    except NotRunning:
        if is_local(host) or host.socket is not None:
            text = f"nobody answers at {host}: puna run starts a server, so does puna serve"
            return Finding(area=area, name=name, text=text)
        return Finding(area=area, name=name, text=f"nobody answers at {host}", level="error")
    except CliError as error:
        advice = "set OLLAMA_HOST to another address for puna"
        text = f"{host} is taken by something else: {error}"
        return Finding(area=area, name=name, text=text, level="error", advice=advice)
    if "puna" in reply:
        return Finding(area=area, name=name, text=f"puna {reply['puna']} answers at {host}")
    text = f"Ollama {reply.get('version', '')} answers at {host}"
    advice = "commands talk to it; stop it, or set OLLAMA_HOST to another address for puna"
    return Finding(area=area, name=name, text=text, level="warning", advice=advice)


def store_findings(settings: Settings) -> Iterator[Finding]:
    """The models that are there, those of Ollama's service, and the room that is left."""
    area, root = "Store", settings.models
    existing = next(path for path in (root, *root.parents) if path.exists())
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK) or not existing.is_dir():
        text, advice = f"{root} cannot be written", "set OLLAMA_MODELS to a directory of yours"
        yield Finding(area=area, name="models", text=text, level="error", advice=advice)
        return
    models = list(Store(root, settings.read_only_models).list())
    size = human_size(sum(model.size for model in models))
    yield Finding(area=area, name="models", text=f"{len(models)}, {size}, in {root}")
    free = shutil.disk_usage(existing).free
    yield Finding(
        area=area,
        name="free space",
        text=human_size(free),
        level="ok" if free >= _LITTLE_SPACE else "warning",
        advice="" if free >= _LITTLE_SPACE else "less than most models take",
    )
    if SYSTEM_MODELS in settings.read_only_models:
        yield _of_ollama(SYSTEM_MODELS)


def _of_ollama(directory: Path) -> Finding:
    area, name = "Store", "Ollama's service"
    try:
        is_there = directory.exists()
    except OSError:
        is_there = True
    if not is_there:
        return Finding(area=area, name=name, text="has no models here")
    if os.access(directory / "manifests", os.R_OK | os.X_OK):
        return Finding(area=area, name=name, text=f"its models are seen too, in {directory}")
    advice = "to use its models, join its group: sudo usermod -aG ollama $USER"
    return Finding(
        area=area,
        name=name,
        text=f"its models cannot be read, in {directory}",
        level="warning",
        advice=advice,
    )
