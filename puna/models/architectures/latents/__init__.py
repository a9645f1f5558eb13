"""Models that keep latents instead of keys and values."""
