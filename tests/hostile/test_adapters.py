"""LoRA adapters are strangers' files: each is used, or refused with an error that says what is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna.backends.base import ModelLoadError
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from tests.adapters import write_adapter
from tests.forward import all_logits, load_adapter, load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

NUM_MUTANTS = 200


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("hostile") / "model.gguf", TINY["qwen3moe"])


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[CpuModel]:
    backend = CpuBackend(num_threads=1)
    model = load_file(backend, path)
    yield model
    model.close()
    backend.close()


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"general.type": "model"}, 'general.type is .*model.*, not "adapter"'),
        ({"adapter.type": None}, 'adapter.type is .*, not "lora"'),
        (
            {"general.architecture": "llama"},
            "the adapter is for architecture .*llama.*, the model is 'qwen3moe'",
        ),
        ({"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha is nan, not a finite float32"),
        ({"adapter.lora.alpha": "16"}, "adapter.lora.alpha is .*, not a finite float32"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, "aLoRA"),
    ],
)
def test_metadata(path: Path, model: CpuModel, tmp_path: Path, metadata: dict[str, Any], error: str) -> None:
    adapter = write_adapter(tmp_path / "adapter.gguf", path, metadata=metadata)
    with pytest.raises(ModelLoadError, match=f"{adapter}: .*{error}"):
        load_adapter(model, adapter)


Q, ROUTER = "blk.0.attn_q.weight", "blk.0.ffn_gate_inp.weight"
EXPERTS = "blk.0.ffn_up_exps.weight"


@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        ({}, "the adapter changes nothing"),
        ({f"{Q}.lora_a": (4, 96)}, f"{Q}.lora_a stands alone: there is no {Q}.lora_b"),
        ({f"{Q}.lora_b": (192, 4)}, f"{Q}.lora_b stands alone"),
        (
            {f"{Q}.lora_a": (4, 64), f"{Q}.lora_b": (192, 4)},
            r"shape \[64, 4\] where the model needs \[96, 4\]",
        ),
        (
            {f"{Q}.lora_a": (4, 96), f"{Q}.lora_b": (96, 4)},
            r"shape \[4, 96\] where the model needs \[4, 192\]",
        ),
        (
            {f"{Q}.lora_a": (5, 96), f"{Q}.lora_b": (192, 4)},
            r"shape \[96, 5\] where the model needs \[96, 4\]",
        ),
        ({f"{Q}.lora_a": (2, 4, 96), f"{Q}.lora_b": (192, 4)}, "more than two dimensions"),
        ({f"{Q}.lora_a": (1025, 96), f"{Q}.lora_b": (192, 1025)}, "rank .* is 1025, not between 1 and 1024"),
        ({"blk.9.attn_q.weight.lora_a": (4, 96)}, "the model has no tensor blk.9.attn_q.weight"),
        ({f"{EXPERTS}.lora_a": (7, 4, 96)}, "adapters cannot change a tensor of this kind"),
        ({"blk.0.attn_norm.weight.lora_a": (4, 96)}, "adapters cannot change a tensor of this kind"),
        ({"token_embd.weight.lora_a": (4, 96)}, "embeddings that are the output's matrix, too"),
        ({Q: (192, 96)}, f"tensor {Q} is no part of an adapter"),
    ],
)
def test_tensors(
    path: Path, model: CpuModel, tmp_path: Path, shapes: dict[str, tuple[int, ...]], error: str
) -> None:
    adapter = write_adapter(tmp_path / "adapter.gguf", path, [], others=shapes)
    with pytest.raises(ModelLoadError, match=error):
        load_adapter(model, adapter)


def test_mutants_are_used_or_refused(path: Path, model: CpuModel, tmp_path: Path) -> None:
    good = write_adapter(tmp_path / "adapter.gguf", path, [Q, ROUTER], rank=3).read_bytes()
    errors = []
    for seed in range(NUM_MUTANTS):
        rng, data = random.Random(seed), bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data) // 3)] = rng.randrange(256)
        mutant = tmp_path / "mutant.gguf"
        mutant.write_bytes(data if seed % 5 else data[: rng.randrange(len(data))])
        try:
            adapter = load_adapter(model, mutant)
        except ModelLoadError as error:
            errors.append(str(error))
        else:
            assert all_logits(model, [1, 2, 3], adapter=adapter).dtype == np.float32
    assert all(str(tmp_path) in error for error in errors)
    assert NUM_MUTANTS // 3 < len(errors) < NUM_MUTANTS
