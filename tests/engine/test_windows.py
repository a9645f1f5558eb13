"""What a sequence holds where most layers see a window: of those little more than the window reaches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams
from puna.kv.blocks import blocks_for
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

# Gemma 3 270M in small: 15 of 18 layers have a window, of 32 tokens for 1,000 as there of 512 for 16,000.
LAYERS, WINDOW, NUM_TOKENS = 18, 32, 1000


def test_a_long_sequence_holds_a_quarter_of_what_it_would_without_windows(tmp_path: Path):
    tiny = TINY["gemma3"]
    tiny = replace(tiny, layers=LAYERS, metadata=tiny.metadata | {"attention.sliding_window": WINDOW})
    path = write_tiny(tmp_path / "tiny.gguf", tiny)
    backend = CpuBackend(num_threads=2)
    engine = EngineCore(backend, EngineSettings())
    model = load_file(backend, path)
    engine.attach_model("m", model)
    prompt = np.random.default_rng(1).integers(0, 260, NUM_TOKENS).tolist()
    sampling = SamplingParams(temperature=0)
    engine.submit(Request(id="r", model_id="m", prompt=prompt, sampling=sampling, max_tokens=40, num_draft=0))
    held = []
    while engine.has_work:
        if any(output.tokens for output in engine.step()) and engine.has_work:
            held.append(engine.stats().models[0].used_kv_bytes)
    engine.close()
    backend.close()
    assert len(held) > 20
    assert max(held) <= blocks_for(NUM_TOKENS) * model.info.block_bytes / 4
