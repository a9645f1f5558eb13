"""llama.cpp's server as the xllamacpp package has it: within this process."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import NoReturn

from puna.worker.cage.program_rules import Places
from puna.worker.llamacpp.messages import Launch
from puna.worker.llamacpp.socket_directory import SOCKET_NAME

_PACKAGE = "xllamacpp"


def is_installed() -> bool:
    """Without importing it, which takes long."""
    return importlib.util.find_spec(_PACKAGE) is not None


def package_places() -> Places:
    """Its own, and its libraries' where they are apart. It is imported now: in a cage, nothing is. Raises
    ImportError.
    """
    package = Path(importlib.import_module(_PACKAGE).__file__ or "").resolve().parent
    return Places((package, package.with_name(f"{_PACKAGE}.libs")))


def serve(launch: Launch, model: int, projector: int | None = None) -> NoReturn:
    """Until the process is killed. Raises what the package raises for a model that it cannot load."""
    xllamacpp = importlib.import_module(_PACKAGE)
    settings, params = launch.settings, xllamacpp.CommonParams()
    params.model.path = f"/proc/self/fd/{model}"
    if projector is not None:
        params.mmproj.path = f"/proc/self/fd/{projector}"
    params.hostnames = [SOCKET_NAME]
    params.n_ctx = launch.total_context
    params.n_parallel = settings.num_slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = launch.num_threads
    params.cache_type_k = params.cache_type_v = _cache_type(xllamacpp, settings.kv_type)
    params.kv_unified = True
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 2
    params.fit_params = False
    params.offline = True
    params.ui = False
    if settings.num_gpu_layers is not None:
        params.n_gpu_layers = settings.num_gpu_layers
    if launch.is_embedding:
        params.embedding = True
        params.n_batch = params.n_ubatch = launch.total_context
    server = xllamacpp.Server(params)
    assert server.listening_address
    while True:  # the server's own threads do the work
        threading.Event().wait()


def _cache_type(xllamacpp: object, name: str) -> object:
    return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}")  # type: ignore[attr-defined]
