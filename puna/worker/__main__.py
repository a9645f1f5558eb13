"""`python -m puna.worker`: started by the daemon, with one end of a socket pair."""

from __future__ import annotations

import argparse
import ctypes
import logging
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puna.engine import EngineSettings

_PR_SET_PDEATHSIG = 1


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the daemon handles it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    arguments = parse_arguments(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="worker: %(levelname)s %(message)s")

    # Only now, so that a Ctrl-C during the slow imports is ignored, too.
    from puna._native import catch_bus_errors
    from puna.backends.cpu import CpuBackend
    from puna.engine import EngineCore
    from puna.worker.server import WorkerServer

    catch_bus_errors()
    with socket.socket(fileno=arguments.socket_fd) as connection:
        backend = CpuBackend(arguments.threads, kv_type=arguments.kv_type)
        try:
            engine = EngineCore(backend, engine_settings(arguments))
            WorkerServer(engine, connection).run()
        finally:
            backend.close()


def engine_settings(arguments: argparse.Namespace) -> EngineSettings:
    from puna.engine import EngineSettings

    return EngineSettings(
        kv_limit_bytes=arguments.kv_bytes,
        memory_limit_bytes=arguments.memory_bytes,
        elastic=bool(arguments.elastic),
        static_context=arguments.static_context,
        kv_idle_s=min(arguments.kv_idle, threading.TIMEOUT_MAX),
        kv_dir=arguments.kv_dir,
        kv_disk_bytes=arguments.kv_disk_bytes,
        cache_policy=arguments.cache_policy,
        multi_user_cache=bool(arguments.multi_user_cache),
        max_running=arguments.max_running,
        max_queue=arguments.max_queue,
    )


def parse_arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m puna.worker", description=__doc__)
    parser.add_argument("--socket-fd", type=int, required=True, help="connected socket, inherited")
    parser.add_argument("--threads", type=int, help="threads that compute; default: one per core")
    parser.add_argument("--kv-type", default="f16", help="what keys and values are stored as")
    parser.add_argument("--kv-bytes", type=int, help="memory for KV caches; default: by memory")
    parser.add_argument("--memory-bytes", type=int, help="for weights and KV; default: by memory")
    parser.add_argument("--elastic", type=int, default=1, help="0: KV memory is taken at load, and kept")
    parser.add_argument("--static-context", type=int, help="tokens for which it is; default: the model's")
    parser.add_argument("--kv-idle", type=float, default=3.0, help="seconds that unused KV is kept; inf")
    parser.add_argument("--kv-dir", help="directory where cached KV outlives its model; default: nowhere")
    parser.add_argument("--kv-disk-bytes", type=int, help="most that it may take; default: by disk")
    parser.add_argument("--cache-policy", default="prefix", choices=["prefix", "slots"])
    parser.add_argument("--multi-user-cache", type=int, default=0, help="1: slots rather keep what they hold")
    parser.add_argument("--max-running", type=int, help="requests of a model that run at once; default: any")
    parser.add_argument("--max-queue", type=int, help="requests that may wait; default: any number")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
