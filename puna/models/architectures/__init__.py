"""Which architectures there are: each is one file, named as GGUF names it, with one function `trace`.

Python's names have underscores where GGUF's have hyphens.
"""

ARCHITECTURES = (
    "deepseek2",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "llama",
    "qwen2",
    "qwen3",
    "qwen3moe",
)
