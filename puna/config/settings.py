"""What puna is told by its environment variables and by Ollama's configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from puna.config.host import Host
from puna.config.local_models import find_local_models
from puna.config.variables import VARIABLES

SYSTEM_MODELS = Path("/usr/share/ollama/.ollama/models")
"""Store of a system-wide Ollama service: read, never written."""

_OURS = ("PUNA_", "OLLAMA_KVCACHED_")
"""Variables that Ollama does not know."""

_IDLE_WITHOUT_DISK_S = 300.0
"""What leaves memory cannot be read back, so it stays as long as a model does by default."""


class SettingsError(ValueError):
    """A value of ours that makes no sense; the text names the variable or the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment asks for; see VARIABLES for the meaning of each field."""

    host: Host = field(default_factory=Host)
    models: Path
    read_only_models: tuple[Path, ...] = ()
    mirrors: tuple[tuple[str, str], ...] = ()
    """(host of a registry, URL) that its models are rather pulled from; several of one host in order."""
    local_models: tuple[Path | None, Path | None] = (None, None)
    """Where Hugging Face's programs, and LM Studio, keep theirs; None: they do not."""
    in_place: Path | None = None
    """What is needed of directories of safetensors that are used where they are; None: they are not."""
    keep_alive_s: float = 300.0
    context_length: int = 0
    load_timeout_s: float = 300.0
    origins: tuple[str, ...] = ()
    max_loaded_models: int = 0
    max_queue: int = 512
    max_body_bytes: int = 64 << 20
    max_running: int | None = None
    no_history: bool = False
    no_prune: bool = False
    max_transfer_streams: int | None = None
    debug: bool = False
    log_format: str = "text"
    access_log: bool = False
    drain_s: float = 5.0
    editor: str = ""
    num_threads: int | None = None
    engine: str = "auto"
    prefers_native: bool = True
    """With "auto": false has another engine run also what ours could."""
    llama_server: Path | None = None
    llama_server_args: tuple[str, ...] = ()
    elastic: bool = True
    kv_limit_bytes: int | None = None
    memory_limit_bytes: int | None = None
    kvcached_socket: Path | None = None
    kv_guarantees: tuple[tuple[str, int], ...] = ()
    """(name, bytes): KV memory that is guaranteed to models."""
    kv_dir: Path = field(default_factory=lambda: Path.home() / ".puna" / "kv")
    kv_disk_bytes: int | None = None
    kv_bytes_per_day: int = 64 << 30
    write_behind: bool = True
    sessions: Path = field(default_factory=lambda: Path.home() / ".puna" / "sessions")
    state_key: Path = field(default_factory=lambda: Path.home() / ".puna" / "state.key")
    registry_key: Path = field(default_factory=lambda: Path.home() / ".ollama" / "id_ed25519")
    """Registries know this machine by it."""
    kv_type: str = "f16"
    kv_idle_s: float = 3.0
    prefers_go_template: bool | None = None
    """Over the template in a model's file; None: the one that offers more."""
    cache_policy: str = "prefix"
    multi_user_cache: bool = False
    model_shares: tuple[tuple[str, float], ...] = ()
    """(name, share): models whose share of the device is not 1."""
    warnings: tuple[str, ...] = ()
    """Values that were replaced by their defaults; the server logs them."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Reads `environ` (default: the process's), and the configuration file in its HOME.

        Raises SettingsError for a bad value of what is ours, and for a bad file.
        """
        from puna.config.config_file import read_config  # slow to import, and not needed for --help

        environ = os.environ if environ is None else environ
        home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        ours = home / ".puna"
        values: dict[str, Any] = {
            "sessions": ours / "sessions",
            "kv_dir": ours / "kv",
            "in_place": ours / "in-place",
            "state_key": ours / "state.key",
            "registry_key": home / ".ollama" / "id_ed25519",
        }
        try:
            values |= read_config(home / ".ollama" / "config.yaml")
        except ValueError as error:
            raise SettingsError(str(error)) from None
        given, warnings = _read_variables(environ)
        values |= given
        values["local_models"] = find_local_models(environ, home)
        if values.get("kv_disk_bytes") == 0 or values.get("cache_policy") == "slots":
            values.setdefault("kv_idle_s", _IDLE_WITHOUT_DISK_S)
        if "models" not in values:
            # An explicit OLLAMA_MODELS is the whole store; only the default one is joined by the system's.
            values["models"] = home / ".ollama" / "models"
            values["read_only_models"] = tuple({SYSTEM_MODELS} - {values["models"]})
        return cls(**values, warnings=tuple(warnings))


def _read_variables(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Fields of Settings that are given, and what was wrong with those that are not ours."""
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for variable in VARIABLES:
        text = environ.get(variable.name, "").strip().strip("\"'").strip()
        if not text:
            continue
        try:
            values[variable.field] = variable.parse(text)
        except ValueError as error:
            if variable.name.startswith(_OURS):
                raise SettingsError(f"{variable.name}: {error}") from None
            warnings.append(f"{variable.name}: {error}, using the default ({variable.default})")
    return values, warnings
