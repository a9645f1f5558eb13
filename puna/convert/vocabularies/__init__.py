"""Tokenizers as Hugging Face and SentencePiece store them, in GGUF's words."""
