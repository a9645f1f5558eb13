"""Loading a file for the CPU: what cannot be run is refused with its path and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puna._native import NativeError
from puna.backends.base import ModelLoadError
from puna.backends.cpu import CpuBackend
from puna.config.variables import KV_TYPES
from puna.gguf import GgufFile
from tests.forward import all_logits, load_file
from tests.gguf.encode import ARRAY, STRING, array
from tests.heads import write_drafter
from tests.hostile.gguf.content import encode, parse
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

TOKENS = list(range(40, 90))
INT32 = 26
"""Of tensors, which cannot be had as floats."""


@pytest.fixture
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2)
    yield backend
    backend.close()


def test_info_says_what_was_loaded(backend: CpuBackend, tmp_path: Path) -> None:
    tiny = TINY["qwen3"]
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    model = load_file(backend, path)
    assert (model.info.architecture, model.info.num_layers) == ("qwen3", tiny.layers)
    assert (model.info.vocab_size, model.info.context_length) == (270, tiny.context)
    assert model.info.block_bytes == tiny.layers * 2 * tiny.kv_heads * tiny.head_dim * 16 * 2
    with GgufFile(path) as file:
        assert model.info.weight_bytes == sum(t.num_bytes for t in file.tensors.values())
    model.close()


def test_experts_that_a_token_did_not_choose_are_idle(backend: CpuBackend, tmp_path: Path) -> None:
    tiny = TINY["qwen3moe"]
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    model = load_file(backend, path)
    with GgufFile(path) as file:
        experts = sum(t.num_bytes for name, t in file.tensors.items() if "_exps" in name)
    count, used = tiny.metadata["expert_count"], tiny.metadata["expert_used_count"]
    assert model.info.idle_weight_bytes * count == experts * (count - used)
    model.close()


def test_a_single_expert_needs_no_dimension(backend: CpuBackend, tmp_path: Path) -> None:
    tiny = TINY["qwen3moe"]
    tiny = replace(tiny, metadata=tiny.metadata | {"expert_count": 1, "expert_used_count": 1})
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    content = parse(path.read_bytes())
    for tensor in content.tensors:
        if b"_exps" in tensor.name:
            tensor.shape.remove(1)
    path.write_bytes(encode(content).file)
    model = load_file(backend, path)
    assert model.info.idle_weight_bytes == 0
    model.close()


@pytest.mark.parametrize(
    ("name", "table"), [("gemma4-small", "per_layer_token_embd"), ("llama-untied", "token_embd")]
)
def test_tables_of_which_rows_are_read_are_not_counted(
    name: str, table: str, backend: CpuBackend, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY[name])
    model = load_file(backend, path)
    with GgufFile(path) as file:
        sizes = {tensor: info.num_bytes for tensor, info in file.tensors.items()}
    assert model.info.weight_bytes == sum(sizes.values()) - sizes[f"{table}.weight"]
    model.close()


PLACED = (
    *("hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "maincoder", "talkie"),
    *("gpt2", "starcoder", "mpt-positions"),
    *("minicpm3", "plm"),
)
"""Keys are normalised after their rotation, or tokens are embedded with their positions, or what was rotated
is copied into the keys of all heads.
"""


@pytest.mark.parametrize("name", TINY)
def test_what_can_shift(name: str, backend: CpuBackend, tmp_path: Path) -> None:
    model = load_file(backend, write_tiny(tmp_path / "tiny.gguf", TINY[name]))
    assert model.info.can_shift == (model.info.state_bytes == 0 and name not in PLACED)
    model.close()


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_logits_do_not_depend_on_chunks_or_threads(kv_type: str, tmp_path: Path) -> None:
    """Bit for bit: otherwise an answer would depend on what else the daemon is doing."""
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"], "Q4_1")
    results = []
    for num_threads, chunk in ((1, 50), (2, 50), (2, 1), (3, 7)):
        backend = CpuBackend(num_threads, kv_type=kv_type)
        model = load_file(backend, path)
        results.append(all_logits(model, TOKENS, chunk))
        model.close()
        backend.close()
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.int32), other.view(np.int32))


def test_unknown_kv_type_is_refused(tmp_path: Path) -> None:
    backend = CpuBackend(1, kv_type="f8")
    with pytest.raises(ModelLoadError, match='unknown type of keys and values "f8"'):
        load_file(backend, write_tiny(tmp_path / "tiny.gguf", TINY["llama"]))
    backend.close()


def test_truncated_file_is_refused(backend: CpuBackend, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    whole = path.read_bytes()
    for size in (0, 3, 20, 500, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError, match=r"tiny\.gguf"):
            load_file(backend, path)


def test_missing_file_is_refused(backend: CpuBackend, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"nothing\.gguf"):
        load_file(backend, tmp_path / "nothing.gguf")


def test_file_that_lacks_a_layer_is_refused(backend: CpuBackend, tmp_path: Path) -> None:
    """The metadata promises one more layer than there are tensors for."""
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    number = b"llama.block_count\x04\x00\x00\x00"
    broken = path.read_bytes().replace(number + b"\x02", number + b"\x03")
    path.write_bytes(broken)
    with pytest.raises(ModelLoadError, match=r"blk\.2\.attn_norm\.weight is missing"):
        load_file(backend, path)


def odd_drafters(drafter: bytes) -> Iterator[bytes]:
    """One that is cut short, one of two architectures, and one whose floats are of a type that is none."""
    yield drafter[:-100]
    content = parse(drafter)
    architecture = next(value for value in content.values if value.key == b"general.architecture")
    architecture.type, architecture.data = ARRAY, array(STRING, 2, architecture.data * 2)
    yield encode(content).file
    content = parse(drafter)
    next(tensor for tensor in content.tensors if tensor.name == b"rope_freqs.weight").type = INT32
    yield encode(content).file


def test_a_drafter_is_gone_without_where_it_does_not_go_with_the_model(
    backend: CpuBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_tiny(tmp_path / "model.gguf", TINY["gemma4"])
    drafter = write_drafter(tmp_path / "drafter.gguf", model)
    together = load_file(backend, model, drafter)
    alone = load_file(backend, model)
    assert together.info.has_drafter
    assert together.info.predicts
    with GgufFile(drafter) as file:
        num_bytes = sum(tensor.num_bytes for tensor in file.tensors.values())
    assert together.info.weight_bytes == alone.info.weight_bytes + num_bytes
    assert together.info.block_bytes == alone.info.block_bytes
    others = {
        "'gemma4-assistant' does not draft for 'llama'": write_tiny(tmp_path / "llama.gguf", TINY["llama"]),
        "rows of 192 values where the model needs 128": write_tiny(
            tmp_path / "other.gguf", replace(TINY["gemma4"], width=64)
        ),
    }
    for reason, other in others.items():
        loaded = load_file(backend, other, drafter)
        assert not loaded.info.predicts
        assert reason in caplog.text
    odd = tmp_path / "odd.gguf"
    for content in odd_drafters(drafter.read_bytes()):
        odd.write_bytes(content)
        assert not load_file(backend, model, odd).info.predicts
    assert not load_file(backend, model, model).info.has_drafter  # a whole model
    with pytest.raises(ModelLoadError, match="drafts for another model"):
        load_file(backend, drafter)


def test_two_models_share_the_pool(backend: CpuBackend, tmp_path: Path) -> None:
    first = load_file(backend, write_tiny(tmp_path / "a.gguf", TINY["llama"]))
    alone = all_logits(first, TOKENS)
    second = load_file(backend, write_tiny(tmp_path / "b.gguf", TINY["qwen2"]))
    all_logits(second, TOKENS)
    np.testing.assert_array_equal(all_logits(first, TOKENS), alone)
    second.close()
    np.testing.assert_array_equal(all_logits(first, TOKENS), alone)
    first.close()


def test_batch_that_does_not_fit_is_refused_and_harms_nothing(backend: CpuBackend, tmp_path: Path) -> None:
    model = load_file(backend, write_tiny(tmp_path / "tiny.gguf", TINY["llama"]))
    alone = all_logits(model, TOKENS)
    with pytest.raises(NativeError, match="token"):
        all_logits(model, [*TOKENS, 270])
    np.testing.assert_array_equal(all_logits(model, TOKENS), alone)
    model.close()


def resident_bytes(path: Path) -> int:
    """How much of its mappings of a file this process has in its page tables."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    found = [re.search(r"^Rss: +(\d+) kB", entry, re.MULTILINE) for entry in maps if str(path) in entry]
    return sum(int(match[1]) * 1024 for match in found if match)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_a_model_that_sleeps_holds_no_weights_and_wakes_with_the_same_logits(
    backend: CpuBackend, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    model = load_file(backend, path)
    before = all_logits(model, TOKENS)
    assert resident_bytes(path) > 0
    model.sleep()
    assert resident_bytes(path) == 0
    path.unlink()  # the mapping is still the file's
    np.testing.assert_array_equal(all_logits(model, TOKENS), before)
    model.close()
