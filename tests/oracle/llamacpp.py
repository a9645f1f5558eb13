"""llama.cpp as an independent oracle: a server in this process, asked for tokens and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

import httpx
import numpy as np
import xllamacpp
from numpy.typing import NDArray

from puna.gguf.pooling import Pooling


class LlamaCpp:
    """One llama.cpp server with one model; a context manager."""

    def __init__(
        self,
        path: Path,
        *,
        context: int = 2048,
        kv_type: str = "f16",
        shift: bool = False,
        pooling: Pooling | Literal["unspecified"] | None = None,
        adapter: Path | None = None,
        num_drafts: int = 0,
        drafter: Path | None = None,
    ) -> None:
        """shift: when the context is full, half of what follows the kept tokens is discarded. pooling: it
        gives embeddings, and nothing else; unspecified: as the file says. num_drafts: of the model's
        prediction head, at a time. drafter: a file that this is in.
        """
        p = xllamacpp.CommonParams()
        if pooling is not None:
            p.embedding = True
            p.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
            p.n_batch = p.n_ubatch = context
        if adapter is not None:
            lora = xllamacpp.CommonAdapterLoraInfo()
            lora.path, lora.scale = str(adapter), 1.0
            p.lora_adapters = [lora]
        if num_drafts:
            kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP
            p.speculative.types = [kind]
            p.speculative.draft.n_max = num_drafts
            p.speculative.draft.p_min = 0.0
            p.load_mtp = drafter is None
        if drafter is not None:
            p.speculative.draft.mparams.path = str(drafter)
            p.speculative.draft.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kv_type.upper()}")
            p.speculative.draft.cache_type_v = p.speculative.draft.cache_type_k
            p.speculative.draft.cpuparams.n_threads = 1
            p.speculative.draft.cpuparams_batch.n_threads = 1
        p.ctx_shift = shift
        p.model.path = str(path)
        p.n_ctx = context
        p.n_parallel = 1
        p.swa_full = True  # else a prompt that goes on after a window is computed from its beginning
        p.warmup = False
        # Of layers with a window it would take one that was kept for another prompt.
        p.n_ctx_checkpoints = 0
        p.verbosity = -1
        # One: threads that spin at barriers slow each other a hundredfold when other things run beside them.
        p.cpuparams.n_threads = 1
        p.cpuparams_batch.n_threads = 1
        kv = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kv_type.upper()}")
        p.cache_type_k = kv
        p.cache_type_v = kv
        # Quantized values need flash attention; without it, sums run in a more accurate way.
        flash = "ENABLED" if kv_type in ("q8_0", "q4_0") else "DISABLED"
        p.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
        self._server = xllamacpp.Server(p)
        self._http = httpx.Client(base_url=self._server.listening_address, timeout=120)
        self._letter = self.tokenize("a")[0]

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
        del self._server

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        tokens: list[int] = self.post("/tokenize", body)["tokens"]
        return tokens

    def tokenize_many(self, texts: Sequence[str], *, parse_special: bool) -> list[list[int]]:
        """In one request, in which a number that is no token stands behind each text."""
        end = 1 << 30
        body = {"content": [part for text in texts for part in (text, end)], "parse_special": parse_special}
        found: list[list[int]] = [[]]
        for token in self.post("/tokenize", body)["tokens"]:
            if token == end:
                found.append([])
            else:
                found[-1].append(token)
        return found[:-1]

    def score(self, query: str, text: str) -> float:
        """Of a model that ranks texts."""
        body = {"query": query, "documents": [text]}
        (found,) = self._http.post("/rerank", json=body).raise_for_status().json()["results"]
        score: float = found["relevance_score"]
        return score

    def embedding(self, text: str | list[int]) -> list[float]:
        """Of length 1. text: or tokens."""
        (found,) = self._http.post("/embedding", json={"content": text}).raise_for_status().json()
        (vector,) = found["embedding"]
        values: list[float] = vector
        return values

    def greedy(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        body = {"prompt": list(prompt), "n_predict": num_tokens, "temperature": 0.0, "return_tokens": True}
        tokens: list[int] = self.post("/completion", body)["tokens"]
        return tokens

    def generate(
        self, prompt: Sequence[int], num_tokens: int, num_top: int, **options: object
    ) -> list[tuple[int, dict[int, float]]]:
        """(token, log-probabilities of the num_top likeliest) of each. Tokens must be whole characters."""
        body = {"prompt": list(prompt), "n_predict": num_tokens, "n_probs": num_top, "ignore_eos": True}
        entries = self.post("/completion", {**body, "cache_prompt": False, **options})[
            "completion_probabilities"
        ]
        assert len(entries) == num_tokens
        return [(e["id"], {top["id"]: top["logprob"] for top in e["top_logprobs"]}) for e in entries]

    def next_logprobs(self, prefix: Sequence[int], num_top: int) -> dict[int, float]:
        """token -> log-probability of the num_top likeliest next tokens."""
        # The bias acts on what is drawn, not on the probabilities; without it a drawn end of text or half of
        # a character would hide them.
        bias = [[self._letter, 1000.0]]
        body = {"prompt": list(prefix), "n_predict": 1, "n_probs": num_top, "logit_bias": bias}
        (first,) = self.post("/completion", {**body, "cache_prompt": True})["completion_probabilities"]
        return {entry["id"]: entry["logprob"] for entry in first["top_logprobs"]}

    def logprobs_at(self, prefix: Sequence[int], vocab_size: int) -> NDArray[np.float32]:
        """Log-probabilities [vocab_size] of the next token."""
        top = self.next_logprobs(prefix, vocab_size)
        return np.array([top[token] for token in range(vocab_size)], dtype=np.float32)

    def post(self, path: str, body: dict[str, object]) -> dict[str, list[int]]:
        reply = self._http.post(path, json=body)
        reply.raise_for_status()
        parsed: dict[str, list[int]] = reply.json()
        return parsed
