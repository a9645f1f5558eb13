"""Tokenizers built from GGUF vocabularies."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.tokenizer.errors import TokenizerError

if TYPE_CHECKING:
    from puna.tokenizer.from_gguf import build_vocabulary, load_tokenizer
    from puna.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer", "TokenizerError", "build_vocabulary", "load_tokenizer"]

__getattr__ = lazy.names(
    __name__,
    {
        "Tokenizer": "puna.tokenizer.tokenizer",
        "build_vocabulary": "puna.tokenizer.from_gguf",
        "load_tokenizer": "puna.tokenizer.from_gguf",
    },
)
