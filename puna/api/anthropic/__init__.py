"""Anthropic's API in terms of Ollama's."""
