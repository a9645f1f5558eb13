"""The GGUF container: metadata, tensor index, quantization formats."""

from puna.gguf.errors import GgufError
from puna.gguf.file import GgufFile, TensorInfo

__all__ = ["GgufError", "GgufFile", "TensorInfo"]
