"""Chat templates in Go's template language, as Ollama's library has them."""
