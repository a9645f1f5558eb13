"""Which tokenizers come with an architecture; files of one may have any that puna knows."""

from __future__ import annotations

_BOTH = "BPE, SentencePiece"
_NONE = "of its own, not known yet"
_TOKENIZERS = {
    "baichuan": "SentencePiece",
    "bert": "WordPiece, Unigram",
    "deepseek2": "BPE",
    "ernie4_5": "SentencePiece",
    "ernie4_5-moe": "SentencePiece",
    "gemma": "SentencePiece",
    "gemma-embedding": "SentencePiece",
    "gemma2": "SentencePiece",
    "gemma3": "SentencePiece",
    "gemma3n": "SentencePiece",
    "internlm2": "SentencePiece",
    "jina-bert-v2": "WordPiece, BPE",
    "jina-bert-v3": "Unigram",
    "llama": _BOTH,
    "minicpm": "SentencePiece",
    "minicpm3": "SentencePiece",
    "nanbeige": "SentencePiece",
    "neo-bert": "WordPiece",
    "nomic-bert": "WordPiece",
    "nomic-bert-moe": "Unigram",
    "orion": "SentencePiece",
    "phi3": _BOTH,
    "phimoe": "SentencePiece",
    "plamo2": _NONE,
    "plamo3": _NONE,
    "spark2_5": _NONE,
    "t5encoder": "Unigram",
    "xverse": "SentencePiece",
}


def tokenizers_of(architecture: str) -> str:
    return _TOKENIZERS.get(architecture, "BPE")
