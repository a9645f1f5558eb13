"""What the GGUF files of tests say of themselves, for stores that are made without reading them."""

from puna.registry.creation.description import WeightsDescription

TINY_WEIGHTS = WeightsDescription(architecture="llama", parameter_size="2K", quantization="F32")
SMOLLM2_WEIGHTS = WeightsDescription(architecture="llama", parameter_size="134.52M", quantization="Q4_1")
GEMMA3_WEIGHTS = WeightsDescription(architecture="gemma3", parameter_size="268.10M", quantization="Q4_K_M")
