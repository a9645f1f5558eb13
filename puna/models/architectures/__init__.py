"""Which architectures there are, by the names that GGUF gives them, and the file of each.

A file has one function `trace`. Files that run several architectures do so without asking which it is.
"""

ARCHITECTURES = {
    "cohere2": "cohere",
    "command-r": "cohere",
    "deepseek2": "deepseek2",
    "ernie4_5": "llama",
    "exaone4": "exaone4",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "glm4": "glm4",
    "gpt-oss": "gpt_oss",
    "gptneox": "gptneox",
    "granite": "granite",
    "granitehybrid": "granite",
    "granitemoe": "granite",
    "internlm2": "llama",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2moe",
    "llama": "llama",
    "mamba2": "mamba2",
    "olmo2": "olmo2",
    "phi2": "phi2",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2moe",
    "qwen2vl": "qwen2",  # its text: the three positions of a token are one
    "qwen3": "qwen3",
    "qwen35": "qwen35",
    "qwen35moe": "qwen35moe",
    "qwen3moe": "qwen3moe",
    "qwen3next": "qwen3next",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
}
