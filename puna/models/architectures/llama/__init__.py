"""Llama, and models that differ from it in little."""
