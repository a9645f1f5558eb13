"""Runs llama.cpp's server until terminated: python -m benchmarks.llamacpp GGUF PORT THREADS SLOTS"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(gguf: str, port: str, threads: str, slots: str) -> None:
    p = xllamacpp.CommonParams()
    p.model.path = gguf
    p.hostnames = ["127.0.0.1"] if hasattr(p, "hostnames") else p.hostnames
    p.port = int(port)
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(threads)
    p.n_parallel = int(slots)
    p.kv_unified = True
    p.n_ctx = 8192
    server = xllamacpp.Server(p)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
