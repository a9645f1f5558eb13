"""The command line of a llama-server. Its options: llama.cpp's tools/server/README.md."""

from __future__ import annotations

from puna.worker.llamacpp.messages import Launch
from puna.worker.llamacpp.socket_directory import SOCKET_NAME

CACHE_TYPES = ("f32", "f16", "q8_0", "q4_0")

_ENVIRONMENT = {
    "LLAMA_ARG_KV_UNIFIED": "1",  # a slot may use what others do not
    "LLAMA_ARG_CACHE_RAM": "0",  # it would keep up to 8 GiB of earlier prompts beside its slots
    "LLAMA_ARG_CTX_CHECKPOINTS": "2",  # likewise, of recurrent layers and windows; 32 by default
    "LLAMA_ARG_FIT": "off",  # a context that does not fit is an error, and not made smaller unsaid
    "LLAMA_ARG_UI": "0",
    "LLAMA_ARG_OFFLINE": "1",
    "LLAMA_ARG_LOG_COLORS": "off",
}
"""Options that only newer servers have: older ones do not look for these variables."""


def server_environment() -> dict[str, str]:
    """Variables for the server, beside those that every child gets."""
    return dict(_ENVIRONMENT)


def server_command(launch: Launch, model: int, projector: int | None = None) -> list[str]:
    """model, projector: descriptors of files, which the server inherits."""
    settings = launch.settings
    options = {
        "--model": f"/proc/self/fd/{model}",
        "--host": SOCKET_NAME,
        "--ctx-size": launch.total_context,
        "--parallel": settings.num_slots,
        "--threads": launch.num_threads,
        "--cache-type-k": settings.kv_type,
        "--cache-type-v": settings.kv_type,
    }
    if projector is not None:
        options["--mmproj"] = f"/proc/self/fd/{projector}"
    if settings.num_gpu_layers is not None:
        options["--n-gpu-layers"] = settings.num_gpu_layers
    if launch.is_embedding:  # a text is computed in one go
        options |= {"--batch-size": launch.total_context, "--ubatch-size": launch.total_context}
    command = [settings.program, *(str(part) for option in options.items() for part in option)]
    return [*command, *(["--embedding"] if launch.is_embedding else []), *settings.arguments]
