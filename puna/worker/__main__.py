"""`python -m puna.worker`: started by the daemon, with one end of a socket pair."""

from __future__ import annotations

import argparse
import ctypes
import logging
import signal
import socket
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the daemon handles it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    arguments = _parse_arguments()
    logging.basicConfig(level=logging.INFO, format="worker: %(levelname)s %(message)s")

    # Only now, so that a Ctrl-C during the slow imports is ignored, too.
    from puna.backends.cpu import CpuBackend
    from puna.engine import EngineCore, EngineSettings
    from puna.worker.server import WorkerServer

    with socket.socket(fileno=arguments.socket_fd) as connection:
        backend = CpuBackend(arguments.threads, kv_type=arguments.kv_type)
        try:
            settings = EngineSettings(
                kv_limit_bytes=arguments.kv_bytes,
                kv_idle_s=min(arguments.kv_idle, threading.TIMEOUT_MAX),
                cache_policy=arguments.cache_policy,
                multi_user_cache=bool(arguments.multi_user_cache),
                max_running=arguments.max_running,
                max_queue=arguments.max_queue,
            )
            engine = EngineCore(backend, settings)
            WorkerServer(engine, connection).run()
        finally:
            backend.close()


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m puna.worker", description=__doc__)
    parser.add_argument("--socket-fd", type=int, required=True, help="connected socket, inherited")
    parser.add_argument("--threads", type=int, help="threads that compute; default: one per core")
    parser.add_argument("--kv-type", default="f16", help="what keys and values are stored as")
    parser.add_argument("--kv-bytes", type=int, help="memory for KV caches; default: by memory")
    parser.add_argument("--kv-idle", type=float, default=300.0, help="seconds that unused KV is kept; inf")
    parser.add_argument("--cache-policy", default="prefix", choices=["prefix", "slots"])
    parser.add_argument("--multi-user-cache", type=int, default=0, help="1: slots rather keep what they hold")
    parser.add_argument("--max-running", type=int, help="requests of a model that run at once; default: any")
    parser.add_argument("--max-queue", type=int, help="requests that may wait; default: any number")
    return parser.parse_args()


if __name__ == "__main__":
    main()
