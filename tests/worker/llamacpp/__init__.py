"""The second engine's worker."""
