"""Tensors of safetensors that GGUF has in another order, or as several."""
