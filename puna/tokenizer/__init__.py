"""Tokenizers built from GGUF vocabularies."""

from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.from_gguf import build_vocabulary, load_tokenizer
from puna.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer", "TokenizerError", "build_vocabulary", "load_tokenizer"]
