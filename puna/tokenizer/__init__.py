"""Tokenizers built from GGUF vocabularies."""

from typing import TYPE_CHECKING

from puna import lazy
from puna.tokenizer.errors import TokenizerError

if TYPE_CHECKING:
    from puna.tokenizer.from_gguf import build_stand_in, build_vocabulary, load_tokenizer, unknown_part
    from puna.tokenizer.tokenizer import Tokenizer

__all__ = [
    "Tokenizer",
    "TokenizerError",
    "build_stand_in",
    "build_vocabulary",
    "load_tokenizer",
    "unknown_part",
]

__getattr__ = lazy.names(
    __name__,
    {
        "Tokenizer": "puna.tokenizer.tokenizer",
        "build_stand_in": "puna.tokenizer.from_gguf",
        "build_vocabulary": "puna.tokenizer.from_gguf",
        "load_tokenizer": "puna.tokenizer.from_gguf",
        "unknown_part": "puna.tokenizer.from_gguf",
    },
)
