"""Which architectures there are: each is one file, named as GGUF names it, with one function `trace`.

Python's names have underscores where GGUF's have hyphens.
"""

ARCHITECTURES = (
    "deepseek2",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "granitehybrid",
    "lfm2",
    "lfm2moe",
    "llama",
    "mamba2",
    "qwen2",
    "qwen2vl",
    "qwen3",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
)
