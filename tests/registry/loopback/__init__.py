"""A registry on loopback that speaks as Ollama's does, and fails as others do."""
