"""What a model costs, and that every line of the table can be taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.synthetic.qwen3 import QWEN3_30B_A3B
from benchmarks.synthetic.writing import write_model
from puna import _native
from puna.bench.cost import model_cost
from puna.bench.machine import describe_machine
from puna.bench.measure import Bench, BenchError, Work
from puna.gguf import GgufFile
from tests.tiny import ENCODERS, TINY, write_tiny

pytestmark = pytest.mark.native

SHORT = replace(TINY["llama"], context=1024)


def tiny(directory: Path, name: str = "llama") -> Path:
    return write_tiny(directory / f"{name}.gguf", TINY[name])


@pytest.mark.parametrize("name", ["llama", "llama-untied"])
def test_cost(tmp_path, name):
    t = TINY[name]
    with GgufFile(tiny(tmp_path, name)) as file:
        cost = model_cost(file)
        vocab = file.tensors["token_embd.weight"].shape[1]
    attention = 2 * t.heads * t.head_dim * t.width + 2 * t.kv_heads * t.head_dim * t.width
    per_layer = attention + 3 * t.width * t.ffn
    assert cost.ops_per_token == 2 * t.layers * per_layer
    assert cost.ops_per_row == 2 * vocab * t.width  # the embedding counts only where it is the output matrix
    assert cost.bytes_read(1) == cost.bytes_read(9) == 4 * (t.layers * per_layer + vocab * t.width)
    assert cost.ops(3, 2) == 3 * cost.ops_per_token + 2 * cost.ops_per_row


def test_the_cost_of_experts_is_that_of_the_chosen(tmp_path):
    small = replace(QWEN3_30B_A3B, layers=1, width=256, ffn=256, heads=2, vocabulary=1500)
    paths = [tmp_path / name for name in ("two", "four")]
    for path, used in zip(paths, (2, 4), strict=True):
        write_model(replace(small, experts=8, experts_used=used).model(), path)
    with GgufFile(paths[0]) as two, GgufFile(paths[1]) as four:
        costs, num_bytes = (
            [model_cost(two), model_cost(four)],
            two.tensors["blk.0.ffn_up_exps.weight"].num_bytes,
        )
    assert costs[1].ops_per_token - costs[0].ops_per_token == 2 * 2 * 3 * 256 * 256
    read = [costs[0].bytes_read(num_tokens) - costs[0].bytes_read(0) for num_tokens in (1, 2)]
    assert read[1] / read[0] == pytest.approx(1 + 6 / 8)  # of the others, a second token takes its quarter
    assert read[0] == pytest.approx(costs[0].expert_bytes / 4)
    assert costs[0].expert_bytes >= 3 * num_bytes


def test_every_line_of_the_table(tmp_path):
    with Bench(tiny(tmp_path), num_threads=1, kv_limit_bytes=64 << 20, seconds=0.0) as bench:
        results = [bench.run(work) for work in bench.works()]
        bench._core.check()
        assert not bench._core.has_work
    assert [(r.work.kind, r.work.batch, r.work.context) for r in results] == [
        ("prefill", 1, 0),
        ("decode", 1, 0),
        ("decode", 4, 0),
        ("decode", 16, 0),
    ]  # the model's context is 2048: the long one does not fit
    assert all(r.tokens_per_second > 0 and r.ops_per_second > 0 for r in results)
    assert [r.bytes_per_second is None for r in results] == [True, False, False, False]


def test_a_long_context_is_measured_where_it_fits(tmp_path):
    path = write_tiny(tmp_path / "long.gguf", replace(TINY["llama"], context=4096))
    with Bench(path, num_threads=1, kv_limit_bytes=64 << 20, seconds=0.0) as bench:
        assert [work.context for work in bench.works()][-1] == 2048


def test_too_little_kv_memory_is_an_error(tmp_path):
    path = tiny(tmp_path)
    with Bench(path, num_threads=1, kv_limit_bytes=1 << 20, seconds=0.0) as bench:
        block_bytes = bench.info.block_bytes
    with (
        Bench(path, num_threads=1, kv_limit_bytes=20 * block_bytes, seconds=0.0) as bench,
        pytest.raises(BenchError, match="KV memory"),
    ):
        bench.run(Work(kind="decode", batch=16, context=0))


def test_titles():
    titles = [Work(kind="decode", batch=b, context=c).title for b, c in ((1, 0), (4, 0), (1, 2048))]
    assert titles == ["decode, 1 stream", "decode, 4 streams", "decode, 1 stream, 2048 tokens of context"]


def test_the_machine():
    machine = describe_machine(3)
    assert machine.num_threads == 3
    assert machine.isa == machine.isas[0]
    assert 0 < machine.available_bytes <= machine.memory_bytes
    assert describe_machine().num_threads >= 1


@pytest.mark.parametrize("threads", [1, 3])
def test_roofs(threads):
    pool = _native.ThreadPool(threads)
    for isa in _native.cpu_info().isas:
        assert _native.measure_dot_peak(pool, 0.001, isa) > 1e6
    assert _native.measure_read_bandwidth(pool, 1 << 20, 0.001) > 1e6
    with pytest.raises(_native.NativeError, match="instruction set"):
        _native.measure_dot_peak(pool, 0.001, "mmx")
    with pytest.raises(_native.NativeError, match="too few bytes"):
        _native.measure_read_bandwidth(pool, threads * 4096 - 1, 0.001)
    pool.close()
    with pytest.raises(_native.NativeError, match="closed"):
        _native.measure_dot_peak(pool, 0.001)


def test_an_encoder_has_only_a_prefill(tmp_path):
    path = write_tiny(tmp_path / "encoder.gguf", ENCODERS["bert"])
    with Bench(path, num_threads=1, kv_limit_bytes=64 << 20, seconds=0.0) as bench:
        works = list(bench.works())
        assert [work.kind for work in works] == ["prefill"]
        assert bench.run(works[0]).tokens_per_second > 0
