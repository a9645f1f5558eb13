"""What was measured of each architecture beside llama.cpp, as `python -m benchmarks.models` left it here."""

from __future__ import annotations

from pathlib import Path

import msgspec

PATH = Path(__file__).with_name("measured.json")


class Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a model of the architecture with random weights."""

    tokenizers: str
    """Of files that people have."""
    oracle: tuple[int, int] = (0, 0)
    """Comparisons with llama.cpp's results: passed, and of how many."""
    batches: tuple[int, int] = (0, 0)
    """Tests that an answer's bits do not depend on what else is computed: the same."""
    prefill: float | None = None
    """Tokens per second over llama.cpp's; None: not measured."""
    decode: float | None = None
    kv_bytes_per_token: int = 0
    """Of the model measured."""
    fixed_bytes: int = 0
    """Of its windows and states."""
    weight_type: str = ""


def measured() -> dict[str, Measured]:
    """By the architecture's name in GGUF."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, Measured])
