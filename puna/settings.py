"""Environment variables: every one that puna reads is declared in VARIABLES, and nowhere else."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM_MODELS = Path("/usr/share/ollama/.ollama/models")
"""Store of a system-wide Ollama service: read, never written."""

DEFAULT_PORT = 11434

CACHE_POLICIES = ("prefix", "slots")
"""How prompts find the KV of earlier ones: by content, or in the slot of the one that is most alike."""

KV_TYPES = ("f16", "q8_0", "q4_0", "f32")
"""What keys and values can be stored as, in 16, 8.5, 4.5 or 32 bits each."""


class SettingsError(ValueError):
    """A PUNA_* variable whose value makes no sense; the text names the variable."""


@dataclass(frozen=True, slots=True)
class Host:
    """OLLAMA_HOST, as the server binds it and as the client connects to it."""

    scheme: str = "http"
    address: str = "127.0.0.1"
    """Host name or IP without brackets; empty means every interface."""
    port: int = DEFAULT_PORT
    """0 lets the system choose one."""
    path: str = ""

    @property
    def base_url(self) -> str:
        """Where a client connects: an address that only a server can use becomes the loopback one."""
        address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)
        return f"{self.scheme}://{join_host_port(address, self.port)}{self.path}"

    def __str__(self) -> str:
        return join_host_port(self.address, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment asks for; see VARIABLES for the meaning of each field."""

    host: Host = Host()
    models: Path
    read_only_models: tuple[Path, ...] = ()
    keep_alive_s: float = 300.0
    context_length: int = 0
    load_timeout_s: float = 300.0
    origins: tuple[str, ...] = ()
    max_loaded_models: int = 0
    max_queue: int = 512
    max_running: int | None = None
    no_history: bool = False
    debug: bool = False
    num_threads: int | None = None
    elastic: bool = True
    kv_limit_bytes: int | None = None
    memory_limit_bytes: int | None = None
    kvcached_socket: Path | None = None
    kv_minimums: tuple[tuple[str, int], ...] = ()
    """(name, bytes) of models that are sure of so much KV memory."""
    kv_dir: Path = field(default_factory=lambda: Path.home() / ".puna" / "kv")
    kv_disk_bytes: int | None = None
    sessions: Path = field(default_factory=lambda: Path.home() / ".puna" / "sessions")
    kv_type: str = "f16"
    kv_idle_s: float = 3.0
    cache_policy: str = "prefix"
    multi_user_cache: bool = False
    model_weights: tuple[tuple[str, float], ...] = ()
    """(name, weight) of models whose share of the device is not 1."""
    warnings: tuple[str, ...] = ()
    """Values that were replaced by their defaults; the server logs them."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Reads `environ` (default: the process's). Raises SettingsError for a bad PUNA_* value."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        warnings: list[str] = []
        for variable in VARIABLES:
            text = environ.get(variable.name, "").strip().strip("\"'").strip()
            if not text:
                continue
            try:
                values[variable.field] = variable.parse(text)
            except ValueError as error:
                if variable.name.startswith("PUNA_"):
                    raise SettingsError(f"{variable.name}: {error}") from None
                warnings.append(f"{variable.name}: {error}, using the default ({variable.default})")
        home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        values.setdefault("sessions", home / ".puna" / "sessions")
        if "models" not in values:
            # An explicit OLLAMA_MODELS is the whole store; only the default one is joined by the system's.
            values["models"] = home / ".ollama" / "models"
            values["read_only_models"] = tuple({SYSTEM_MODELS} - {values["models"]})
        return cls(**values, warnings=tuple(warnings))


def join_host_port(address: str, port: int) -> str:
    """`address:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_host(text: str) -> Host:
    """Parses `[scheme://]host[:port][/path]`; a bad port becomes the default, nothing is an error."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = ("https", "ollama.com:443") if text == "ollama.com" else ("http", text)
    default_port = {"http": 80, "https": 443}.get(scheme, DEFAULT_PORT) if separator else DEFAULT_PORT
    host_port, slash, path = rest.partition("/")
    address, port = _split_host_port(host_port)
    valid = re.fullmatch(r"\d{1,5}", port, re.ASCII) is not None and int(port) <= 65535
    return Host(scheme, address, int(port) if valid else default_port, (slash + path).rstrip("/"))


def _split_host_port(text: str) -> tuple[str, str]:
    """(address, port), the port empty if there is none; address of an empty text is the loopback one."""
    if match := re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", text):
        return match[1], match[2] or ""
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address, port
    return text.strip("[]") or "127.0.0.1", ""  # a bare IPv6 address has several colons and no port


# Go's time.ParseDuration, with its error texts: clients know them.
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
_MAX_DURATION_S = (2**63 - 1) / 1e9


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as "1h30m", "-1s" or "0"; raises ValueError with Go's text."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0.0
    position, seconds = 0, 0.0
    while position < len(unsigned):
        part = _DURATION_PART.match(unsigned, position)
        if part is None:
            raise ValueError(f'time: invalid duration "{text}"')
        number, unit = part.groups()
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _UNIT_S:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        seconds += float(number) * _UNIT_S[unit]
        position = part.end()
    if not unsigned or seconds > _MAX_DURATION_S:
        raise ValueError(f'time: invalid duration "{text}"')
    return -seconds if text.startswith("-") else seconds


def keep_alive_seconds(value: float | str) -> float:
    """Seconds a model stays after its last request, from a number or a Go duration; negative: math.inf.

    Raises ValueError with Go's text for a string that is no duration.
    """
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    return seconds if 0 <= seconds <= _MAX_DURATION_S else math.inf


def _parse_keep_alive(text: str) -> float:
    return keep_alive_seconds(int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else text)


def _parse_timeout(text: str) -> float:
    return _parse_keep_alive(text) or math.inf


def _parse_count(text: str) -> int:
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise ValueError(f'"{text}" is not a number')
    return int(text)


def _parse_positive(text: str) -> int:
    if (count := _parse_count(text)) < 1:
        raise ValueError(f'"{text}" is not a positive number')
    return count


def _parse_limit(text: str) -> int | None:
    return _parse_count(text) or None


def _parse_bool(text: str) -> bool:
    # Whatever is no Go boolean counts as true: who sets OLLAMA_DEBUG=2 or =yes means it.
    return text not in ("0", "f", "F", "false", "FALSE", "False")


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?)?B?", text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise ValueError(f'"{text}" is not a size (try 12GiB)')
    return int(float(match[1]) * 1024 ** " KMGT".index((match[2] or " ").upper()))


def _parse_cache_policy(text: str) -> str:
    if (name := text.lower()) not in CACHE_POLICIES:
        raise ValueError(f'"{text}" is not one of {", ".join(CACHE_POLICIES)}')
    return name


def _parse_weights(text: str) -> tuple[tuple[str, float], ...]:
    return tuple(_parse_weight(item) for item in _parse_list(text))


def _parse_weight(item: str) -> tuple[str, float]:
    name, _, number = (part.strip() for part in item.rpartition("="))
    if not name or not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", number, re.ASCII) or float(number) == 0:
        raise ValueError(f'"{item}" is not a model and a positive number (try llama3.2=2)')
    return name, float(number)


def _parse_kv_type(text: str) -> str:
    if (name := text.lower()) not in KV_TYPES:
        raise ValueError(f'"{text}" is not one of {", ".join(KV_TYPES)}')
    return name


class Variable(NamedTuple):
    """One environment variable: what it sets, its default as a user would write it, and its meaning."""

    name: str
    field: str
    default: str
    parse: Callable[[str], Any]
    meaning: str


VARIABLES: tuple[Variable, ...] = (
    Variable("OLLAMA_HOST", "host", "127.0.0.1:11434", parse_host, "address of the server"),
    Variable("OLLAMA_MODELS", "models", "~/.ollama/models", Path, "directory of the model store"),
    Variable(
        "OLLAMA_KEEP_ALIVE", "keep_alive_s", "5m", _parse_keep_alive, "how long an idle model stays loaded"
    ),
    Variable(
        "OLLAMA_CONTEXT_LENGTH",
        "context_length",
        "0",
        _parse_count,
        "default num_ctx; 0: the model's own limit",
    ),
    Variable(
        "OLLAMA_LOAD_TIMEOUT", "load_timeout_s", "5m", _parse_timeout, "how long a load may take; 0: forever"
    ),
    Variable(
        "OLLAMA_ORIGINS", "origins", "", _parse_list, "further allowed browser origins, comma separated"
    ),
    Variable(
        "OLLAMA_MAX_LOADED_MODELS",
        "max_loaded_models",
        "0",
        _parse_count,
        "models loaded at once; 0: any number",
    ),
    Variable(
        "OLLAMA_MAX_QUEUE",
        "max_queue",
        "512",
        _parse_count,
        "requests that may wait, be it for a model to load or to be computed",
    ),
    Variable(
        "OLLAMA_NUM_PARALLEL",
        "max_running",
        "0",
        _parse_limit,
        "requests of one model that run at once; 0: as many as there is memory for",
    ),
    Variable("OLLAMA_KV_CACHE_TYPE", "kv_type", "f16", _parse_kv_type, "what keys and values are stored as"),
    Variable("OLLAMA_NOHISTORY", "no_history", "false", _parse_bool, "do not keep the history of `run`"),
    Variable("OLLAMA_DEBUG", "debug", "false", _parse_bool, "log in detail"),
    Variable("PUNA_NUM_THREADS", "num_threads", "one per core", _parse_positive, "threads that compute"),
    Variable(
        "PUNA_KV_LIMIT", "kv_limit_bytes", "by memory", _parse_size, "memory for KV caches, such as 12GiB"
    ),
    Variable("PUNA_SESSIONS", "sessions", "~/.puna/sessions", Path, "directory of saved sessions"),
    Variable(
        "PUNA_KV_IDLE",
        "kv_idle_s",
        "5m",
        _parse_keep_alive,
        "how long the KV of earlier prompts is kept when nothing is computed",
    ),
    Variable(
        "PUNA_CACHE_POLICY",
        "cache_policy",
        "prefix",
        _parse_cache_policy,
        "how prompts find the KV of earlier ones: prefix or slots",
    ),
    Variable(
        "OLLAMA_MULTIUSER_CACHE",
        "multi_user_cache",
        "false",
        _parse_bool,
        "with slots: rather keep what they hold than continue the best match",
    ),
    Variable(
        "PUNA_MODEL_WEIGHTS",
        "model_weights",
        "",
        _parse_weights,
        "shares of the device when several models are busy, such as llama3.2=2,qwen3=0.5; others have 1",
    ),
)
