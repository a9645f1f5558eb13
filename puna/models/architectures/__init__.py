"""Which architectures there are: each is one file, named as GGUF names it, with one function `trace`.

Python's names have underscores where GGUF's have hyphens.
"""

ARCHITECTURES = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
