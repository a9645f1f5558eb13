"""The environment variables that puna reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from puna.config.host import parse_host
from puna.config.quantities import parse_memory_limit
from puna.config.values import (
    one_of,
    parse_arguments,
    parse_bool,
    parse_count,
    parse_drain,
    parse_gigabytes,
    parse_guarantees,
    parse_keep_alive,
    parse_list,
    parse_mirrors,
    parse_most,
    parse_most_on_disk,
    parse_positive,
    parse_shares,
    parse_switch,
    parse_timeout,
)

CACHE_POLICIES = ("prefix", "slots")
"""How prompts find the KV of earlier ones: by content, or in the slot of the one that is most alike."""

ENGINES = ("auto", "native", "llamacpp")
"""What runs models: the native engine, llama.cpp's server, or the latter for what the former does not run."""

LOG_FORMATS = ("text", "json")

KV_TYPES = ("f16", "q8_0", "q4_0", "f32")
"""What keys and values can be stored as, in 16, 8.5, 4.5 or 32 bits each."""


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
        "PUNA_MIRRORS",
        "mirrors",
        "",
        parse_mirrors,
        "where models of a registry are rather pulled from, such as hf.co=https://mirror.example/hf",
    ),
    Variable(
        "OLLAMA_KEEP_ALIVE", "keep_alive_s", "5m", parse_keep_alive, "how long an idle model stays loaded"
    ),
    Variable(
        "OLLAMA_CONTEXT_LENGTH",
        "context_length",
        "0",
        parse_count,
        "default num_ctx; 0: the model's own limit",
    ),
    Variable(
        "OLLAMA_LOAD_TIMEOUT", "load_timeout_s", "5m", parse_timeout, "how long a load may take; 0: forever"
    ),
    Variable("OLLAMA_ORIGINS", "origins", "", parse_list, "further allowed browser origins, comma separated"),
    Variable(
        "OLLAMA_MAX_LOADED_MODELS",
        "max_loaded_models",
        "0",
        parse_count,
        "models loaded at once; 0: any number",
    ),
    Variable(
        "OLLAMA_MAX_QUEUE",
        "max_queue",
        "512",
        parse_count,
        "requests that may wait, be it for a model to load or to be computed",
    ),
    Variable(
        "PUNA_MAX_BODY", "max_body_bytes", "64MiB", parse_memory_limit, "longest JSON request, unpacked"
    ),
    Variable(
        "OLLAMA_NUM_PARALLEL",
        "max_running",
        "0",
        parse_most,
        "requests of one model that run at once; 0: as many as there is memory for",
    ),
    Variable(
        "OLLAMA_KV_CACHE_TYPE", "kv_type", "f16", one_of(KV_TYPES), "what keys and values are stored as"
    ),
    Variable(
        "OLLAMA_GO_TEMPLATE",
        "prefers_go_template",
        "the one that offers more",
        parse_bool,
        "whether a model's TEMPLATE makes its prompts rather than the chat template in its file",
    ),
    Variable("OLLAMA_NOHISTORY", "no_history", "false", parse_bool, "do not keep the history of `run`"),
    Variable(
        "OLLAMA_NOPRUNE", "no_prune", "false", parse_bool, "keep what no model in the store needs any more"
    ),
    Variable(
        "OLLAMA_MAX_TRANSFER_STREAMS",
        "max_transfer_streams",
        "16",
        parse_most,
        "parts of a layer that are transferred at once",
    ),
    Variable("OLLAMA_DEBUG", "debug", "false", parse_bool, "log in detail"),
    Variable("OLLAMA_EDITOR", "editor", "VISUAL, EDITOR or vi", str, "editor of `run`, for Ctrl+G"),
    Variable("PUNA_LOG_FORMAT", "log_format", "text", one_of(LOG_FORMATS), "lines of the log: text or json"),
    Variable("PUNA_ACCESS_LOG", "access_log", "false", parse_switch, "log each request"),
    Variable(
        "PUNA_DRAIN",
        "drain_s",
        "5s",
        parse_drain,
        "how long running requests may go on when the daemon is asked to end",
    ),
    Variable("PUNA_NUM_THREADS", "num_threads", "one per core", parse_positive, "threads that compute"),
    Variable(
        "PUNA_ENGINE",
        "engine",
        "auto",
        one_of(ENGINES),
        "what runs models: native, llamacpp, or auto, which is llamacpp for what native does not run",
    ),
    Variable(
        "OLLAMA_NEW_ENGINE",
        "prefers_native",
        "true",
        parse_bool,
        "false: llama.cpp's server runs all models if there is one, unless PUNA_ENGINE says otherwise",
    ),
    Variable(
        "PUNA_LLAMA_SERVER",
        "llama_server",
        "llama-server on PATH",
        Path,
        "llama.cpp's server, for models that it is to run",
    ),
    Variable(
        "PUNA_LLAMA_SERVER_ARGS",
        "llama_server_args",
        "",
        parse_arguments,
        "more of its options, as a shell has them",
    ),
    Variable(
        "OLLAMA_KVCACHED_ENABLED",
        "elastic",
        "true",
        parse_switch,
        "false: each model takes its KV memory when it is loaded and keeps it",
    ),
    Variable(
        "OLLAMA_KVCACHED_MEMORY_GB",
        "kv_limit_bytes",
        "by memory",
        parse_gigabytes,
        "memory for the KV of all models: GiB, or with a unit, such as 512MiB",
    ),
    Variable(
        "OLLAMA_KVCACHED_SOCKET", "kvcached_socket", "", Path, "where KV memory is lent out by gRPC; else not"
    ),
    Variable(
        "PUNA_MEMORY_LIMIT",
        "memory_limit_bytes",
        "by memory",
        parse_memory_limit,
        "memory for weights and KV of all models, such as 12GiB",
    ),
    Variable(
        "PUNA_MODEL_KV_MIN",
        "kv_guarantees",
        "",
        parse_guarantees,
        "KV memory that is guaranteed to models, such as llama3.2=512MiB,qwen3=1GiB",
    ),
    Variable(
        "PUNA_KV_DISK",
        "kv_disk_bytes",
        "8GiB, or a tenth of what is free",
        parse_most_on_disk,
        "most that KV of earlier prompts takes on disk; 0: none is kept there",
    ),
    Variable(
        "PUNA_KV_WRITES",
        "kv_bytes_per_day",
        "64GiB",
        parse_most_on_disk,
        "most of it that is written in a day, so that disks last",
    ),
    Variable(
        "PUNA_KV_WRITE_BEHIND",
        "write_behind",
        "true",
        parse_switch,
        "whether it is written while models are busy, too, and so outlives a crash",
    ),
    Variable("PUNA_KV_DIR", "kv_dir", "~/.puna/kv", Path, "directory of that"),
    Variable("PUNA_SESSIONS", "sessions", "~/.puna/sessions", Path, "directory of saved sessions"),
    Variable(
        "PUNA_STATE_KEY",
        "state_key",
        "~/.puna/state.key",
        Path,
        "file of the key with which both are authenticated; made if it is not there",
    ),
    Variable(
        "PUNA_KV_IDLE",
        "kv_idle_s",
        "3s, without disk 5m",
        parse_keep_alive,
        "how long the KV of earlier prompts stays in memory when a model computes nothing",
    ),
    Variable(
        "PUNA_CACHE_POLICY",
        "cache_policy",
        "prefix",
        one_of(CACHE_POLICIES),
        "how prompts find the KV of earlier ones: prefix or slots",
    ),
    Variable(
        "OLLAMA_MULTIUSER_CACHE",
        "multi_user_cache",
        "false",
        parse_bool,
        "with slots: rather keep what they hold than continue the best match",
    ),
    Variable(
        "PUNA_MODEL_SHARES",
        "model_shares",
        "",
        parse_shares,
        "shares of the device when several models are busy, such as llama3.2=2,qwen3=0.5; others have 1",
    ),
)
