"""What Ollama's API does not have."""
