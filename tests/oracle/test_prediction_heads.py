"""Prediction heads draft what llama.cpp's do: as many drafts, of which as many are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from tests.forward import load_file
from tests.heads import Drafting, write_drafter, write_predicting
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny import TINY

pytestmark = pytest.mark.oracle

PROMPT_TOKENS = 70
NUM_TOKENS = 60


Drafted = list[tuple[list[int], int, int]]
"""(tokens, drafts, drafts that were right) of each reply."""


def drafted(path: Path, prompts: list[list[int]], num_drafts: int, drafter: Path | None = None) -> Drafted:
    backend = CpuBackend(num_threads=2, kv_type="f32")
    model = load_file(backend, path, drafter)
    found = []
    for prompt in prompts:
        drafting = Drafting(model, PROMPT_TOKENS + NUM_TOKENS + num_drafts)
        drafting.compute(prompt, chunk=33)
        drafting.step([])
        while num_left := PROMPT_TOKENS + NUM_TOKENS - len(drafting.tokens):
            count = min(num_drafts, num_left - 1)  # as llama.cpp: one token is drawn in any case
            drafting.step(drafting.draft(count) if count else [])
        found.append((drafting.tokens[PROMPT_TOKENS:], drafting.num_drafted, drafting.num_right))
        drafting.close()
    model.close()
    backend.close()
    return found


def llama_cpp_drafted(
    path: Path, prompts: list[list[int]], num_drafts: int, drafter: Path | None = None
) -> Drafted:
    found = []
    with LlamaCpp(path, kv_type="f32", num_drafts=num_drafts, drafter=drafter) as oracle:
        for prompt in prompts:
            body = {"prompt": prompt, "n_predict": NUM_TOKENS, "temperature": 0.0, "return_tokens": True}
            reply = oracle.post("/completion", {**body, "cache_prompt": False})
            counts = dict(reply["timings"])
            found.append((reply["tokens"], counts["draft_n"], counts["draft_n_accepted"]))
    return found


@pytest.mark.parametrize("num_drafts", [1, 3])
@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2", "hy_v3"])
def test_as_many_drafts_are_right(name: str, num_drafts: int, tmp_path: Path) -> None:
    path = write_predicting(tmp_path / "tiny.gguf", TINY[name])
    rng = np.random.default_rng(5)
    prompts = [rng.integers(0, 200, PROMPT_TOKENS).tolist() for _ in range(3)]
    ours, theirs = drafted(path, prompts, num_drafts), llama_cpp_drafted(path, prompts, num_drafts)
    for (tokens, *counts), (their_tokens, *their_counts) in zip(ours, theirs, strict=True):
        assert tokens == their_tokens
        # Behind recurrent layers llama.cpp leaves drafts out now and then.
        assert np.abs(np.subtract(counts, their_counts)).max() <= num_drafts
    assert sum(right for *_, right in ours) > 10
    assert any(right < drafts for _, drafts, right in ours)


# llama.cpp takes the last two layers for those that the drafter reads: one with a window, and one without.
KEPT = {
    "attention.sliding_window_pattern": [True, False, True, False],
    "attention.head_count_kv": [3, 2, 3, 2],
}


@pytest.mark.parametrize("num_drafts", [1, 3])
@pytest.mark.parametrize("name", ["gemma4", "gemma4-small"])
def test_drafters_in_files_of_their_own(name: str, num_drafts: int, tmp_path: Path) -> None:
    changed = TINY[name].metadata | (KEPT if name == "gemma4" else {})
    tiny = replace(TINY[name], metadata=changed, attention_scale=0.3)
    path = write_predicting(tmp_path / "tiny.gguf", tiny)
    drafter = write_drafter(tmp_path / "drafter.gguf", path)
    rng = np.random.default_rng(5)
    prompts = [rng.integers(0, 200, PROMPT_TOKENS).tolist() for _ in range(3)]
    ours = drafted(path, prompts, num_drafts, drafter)
    assert ours == llama_cpp_drafted(path, prompts, num_drafts, drafter)
    assert sum(right for *_, right in ours) > 10
    assert any(right < drafts for _, drafts, right in ours)
