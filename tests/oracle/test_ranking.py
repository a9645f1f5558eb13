"""Pairs of texts are put together as llama.cpp's server does it, so that they get its scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna.chat.ranking_inputs import PairsRequest, encode_pairs
from puna.gguf import GgufFile
from puna.tokenizer import load_tokenizer
from tests.oracle.llamacpp import LlamaCpp
from tests.oracle.test_encoders import vectors
from tests.tiny import RANKERS, write_tiny

pytestmark = pytest.mark.oracle

QUERY = "the an"
DOCUMENTS = ["on the other hand", "12 12 the the er", "x {query}", "日本語", "<|endoftext|> in"]
TEMPLATE = "<|endoftext|>Query: {query}\nDocument: {document}\n"


def adds(**tokens: bool) -> dict[str, Any]:
    return {f"tokenizer.ggml.add_{name}_token": wanted for name, wanted in tokens.items()}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("bert", adds(bos=True)),
        ("bert", adds(bos=True, eos=True)),
        ("bert", adds(bos=True, eos=True, sep=True) | {"tokenizer.ggml.seperator_token_id": 5}),
        ("qwen3", {"tokenizer.chat_template.rerank": TEMPLATE}),
    ],
)
def test_scores(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", replace(RANKERS[name], shared_metadata=keys))
    template = keys.get("tokenizer.chat_template.rerank")
    request = PairsRequest(query=QUERY, documents=DOCUMENTS, context_length=512)
    with GgufFile(path) as file:
        ours = vectors(path, encode_pairs(request, load_tokenizer(file.metadata), template))[:, 0]
    with LlamaCpp(path, context=512, pooling="rank") as oracle:
        theirs = [oracle.score(QUERY, document) for document in DOCUMENTS]
    assert np.ptp(theirs) > 1e-3
    assert np.abs(ours - theirs).max() < 1e-3
