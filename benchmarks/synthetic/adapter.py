"""Writes a LoRA adapter of random matrices for a synthetic model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from benchmarks.synthetic.model import SyntheticModel


def write_adapter(
    model: SyntheticModel, rank: int, float_type: type[np.floating], seed: int, target: Path
) -> None:
    """For all matrices of its layers; what it adds is a tenth of what they give. float_type: float16 or
    float32.
    """
    rng = np.random.default_rng(seed)
    writer = GGUFWriter(target, model.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))

    def random(rows: int, cols: int, size: float) -> NDArray[np.floating]:
        return (rng.standard_normal((rows, cols), np.float32) * size).astype(float_type)

    for shape in model.tensors:
        if shape.layer >= 0 and shape.cols:
            writer.add_tensor(f"{shape.name}.lora_a", random(rank, shape.cols, shape.cols**-0.5))
            writer.add_tensor(f"{shape.name}.lora_b", random(shape.rows, rank, 0.1 * rank**-0.5))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
