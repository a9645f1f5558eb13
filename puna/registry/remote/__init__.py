"""Registries on the network: OCI's distribution protocol, as Ollama's registry speaks it."""
