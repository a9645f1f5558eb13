"""One long sequence of a model most of whose layers have a window: what KV does it hold as it generates?"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Row, Target, mebibytes, percent
from benchmarks.memory.daemon import Daemon, KvState
from benchmarks.memory.static import static_kv_bytes
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import PunaClient, Stream
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.servers.watching import Sample, watching
from benchmarks.weights.files import bench_file

_NEW_TOKENS = 64
_LOOK_EVERY_S = 0.05
_LARGEST_SHARE = 0.25


def measure(setup: Setup) -> Findings:
    file = bench_file("Gemma3")
    num_tokens = 2_000 if setup.quick else 16_000
    text = Prompts(file.path).take(num_tokens)
    with puna_server(file, setup.threads) as server:
        client, daemon = PunaClient(server.url, file.model), Daemon(server.url)
        client.stream("The", 1)
        with watching(daemon.kv, _LOOK_EVERY_S) as looks:
            stream = client.stream(text, _NEW_TOKENS, {"num_ctx": num_tokens + _NEW_TOKENS})
    held = _largest_held(looks, stream, file.model)
    full = static_kv_bytes(file, num_tokens + _NEW_TOKENS, 1)
    row = Row(
        f"KV held behind a prompt of {num_tokens:,} tokens, of what all layers without windows would take",
        f"{mebibytes(held)}, {percent(held / full)} of {mebibytes(full)}",
        target=Target(_LARGEST_SHARE, is_least=False, show=percent),
        value=held / full,
    )
    yield Finding(f"a long sequence, {file.title}", row)


def _largest_held(looks: Sequence[Sample[KvState]], stream: Stream, model: str) -> int:
    """Bytes that no other sequence could have, while the answer came."""
    begin, end = stream.arrivals[0], stream.arrivals[-1]
    return max(
        kv.used for look in looks if begin <= look.at <= end for kv in look.value.models if kv.name == model
    )
