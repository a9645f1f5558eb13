"""Which architectures there are, by the names that GGUF gives them, and the file of each.

A file has one function `trace`. Files that run several architectures do so without asking which it is.
"""

ARCHITECTURES = {
    "cohere2": "layer_norm.cohere",
    "command-r": "layer_norm.cohere",
    "deepseek2": "deepseek2",
    "ernie4_5": "llama",
    "exaone4": "exaone4",
    "falcon": "layer_norm.falcon",
    "gemma": "gemma.gemma",
    "gemma2": "gemma.gemma2",
    "gemma3": "gemma.gemma3",
    "glm4": "glm4",
    "gpt-oss": "gpt_oss",
    "gptneox": "layer_norm.gptneox",
    "granite": "granite",
    "granitehybrid": "granite",
    "granitemoe": "granite",
    "internlm2": "llama",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2moe",
    "llama": "llama",
    "mamba2": "mamba2",
    "olmo2": "olmo2",
    "phi2": "layer_norm.phi2",
    "qwen2": "qwen.qwen2",
    "qwen2moe": "qwen.qwen2moe",
    "qwen2vl": "qwen.qwen2",  # its text: the three positions of a token are one
    "qwen3": "qwen.qwen3",
    "qwen35": "qwen.qwen35",
    "qwen35moe": "qwen.qwen35moe",
    "qwen3moe": "qwen.qwen3moe",
    "qwen3next": "qwen.qwen3next",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "layer_norm.stablelm",
    "starcoder2": "layer_norm.starcoder2",
}
