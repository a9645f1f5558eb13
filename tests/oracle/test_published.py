"""Of files in Ollama's own forms, written anew, llama.cpp says the same as of its converter's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna.gguf import read_metadata
from puna.gguf.file import open_file
from puna.gguf.translated_file import write_translated
from tests.oracle.llamacpp import LlamaCpp
from tests.tiny.published import FORMS, write_both

pytestmark = pytest.mark.oracle

PROMPT = [5, 9, 200, 3, 77, 8] * 3
VOCAB = 270


@pytest.mark.parametrize("name", [*FORMS, "qwen35moe-head"])
def test_it_says_the_same(name: str, tmp_path: Path):
    converted, published = write_both(tmp_path, name)
    written = tmp_path / "written.gguf"
    with open_file(published) as source, written.open("w+b") as target:
        write_translated(read_metadata(source, "published", as_stored=True), source, target.fileno())
    with LlamaCpp(converted, kv_type="f32") as one, LlamaCpp(written, kv_type="f32") as other:
        np.testing.assert_array_equal(*(each.logprobs_at(PROMPT, VOCAB) for each in (one, other)))
