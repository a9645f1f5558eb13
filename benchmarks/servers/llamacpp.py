"""The xllamacpp wheel in the place of llama-server: takes those of its options that benchmarks.servers.peer
uses.
"""

from __future__ import annotations

import argparse
import signal

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--host", "--flash-attn", "--pooling"):
        parser.add_argument(name)
    for name in ("--port", "--threads", "--threads-batch", "--parallel", "--ctx-size", "--cache-ram"):
        parser.add_argument(name, type=int)
    for name in ("--cache-reuse", "--ctx-checkpoints", "--checkpoint-min-step"):
        parser.add_argument(name, type=int)
    parser.add_argument("--ubatch-size", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--no-repack", action="store_true")
    parser.add_argument("--kv-unified", action="store_true")
    parser.add_argument("--no-warmup", action="store_true")
    parser.add_argument("--embeddings", action="store_true")
    arguments = parser.parse_args()
    # Stays alive until the process is told to end.
    server = xllamacpp.Server(_parameters(arguments))
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


def _parameters(arguments: argparse.Namespace) -> xllamacpp.CommonParams:
    p = xllamacpp.CommonParams()
    p.model.path = arguments.model
    p.hostnames = [arguments.host]
    p.port = arguments.port
    p.cpuparams.n_threads = arguments.threads
    p.cpuparams_batch.n_threads = arguments.threads_batch
    p.n_parallel = arguments.parallel
    p.n_ctx = arguments.ctx_size
    p.cache_ram_mib = arguments.cache_ram
    p.no_extra_bufts = arguments.no_repack
    p.kv_unified = arguments.kv_unified
    p.warmup = not arguments.no_warmup
    if arguments.cache_reuse is not None:
        p.n_cache_reuse = arguments.cache_reuse
    if arguments.ctx_checkpoints is not None:
        p.n_ctx_checkpoints = arguments.ctx_checkpoints
    if arguments.checkpoint_min_step is not None:
        p.checkpoint_min_step = arguments.checkpoint_min_step
    if arguments.batch_size is not None:
        p.n_batch = arguments.batch_size
    if arguments.ubatch_size is not None:
        p.n_ubatch = arguments.ubatch_size
    if arguments.embeddings:
        p.embedding = True
    if arguments.pooling is not None:
        p.pooling_type = getattr(
            xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{arguments.pooling.upper()}"
        )
    if arguments.flash_attn == "off":
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return p


if __name__ == "__main__":
    main()
