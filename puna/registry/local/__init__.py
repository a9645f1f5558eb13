"""GGUF files that other programs keep on this machine: found by name, used in place, never changed."""
