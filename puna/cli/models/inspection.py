"""A model opened in this process, as `bench` does it: to say what it is and what it needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from puna.backends import open_device
from puna.backends.base import BLOCK_TOKENS, ModelInfo, ModelLoadError, ModelSource, UnsupportedModelFile
from puna.config.settings import Settings
from puna.engine import EngineCore, EngineSettings
from puna.worker.llamacpp.finding import FoundServer, NoServer, find_server


def inspect_model(path: Path, settings: Settings) -> ModelInfo:
    """Weights are mapped, not read: it takes milliseconds. Raises ModelLoadError, GgufError."""
    backend = open_device("cpu", settings.num_threads, settings.kv_type)
    try:
        core = EngineCore(backend, EngineSettings(kv_limit_bytes=settings.kv_limit_bytes))
        try:
            with ModelSource.open(path) as source:
                return core.load_model("model", source)
        finally:
            core.close()
    finally:
        backend.close()


def server_instead(error: ModelLoadError, settings: Settings) -> FoundServer | None:
    """Who is asked to run a model that puna's own engine cannot load, if anyone."""
    if isinstance(error, UnsupportedModelFile) and settings.engine != "native":
        with suppress(NoServer):
            return find_server(settings.llama_server)
    return None


def growing_bytes(info: ModelInfo) -> int:
    """Of KV that every further BLOCK_TOKENS tokens take."""
    return sum(group.block_bytes for group in info.groups if not group.is_state and group.window is None)


def settled_bytes(info: ModelInfo) -> int:
    """Of KV that a sequence takes at most besides: of its windows and states."""
    windows = [group for group in info.groups if group.window is not None]
    of_windows = sum(group.block_bytes * -(-(group.window or 0) // BLOCK_TOKENS) for group in windows)
    return info.state_bytes + of_windows
