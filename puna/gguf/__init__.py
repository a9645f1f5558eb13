"""The GGUF container: metadata, tensor index, quantization formats."""

from puna.gguf.errors import GgufError
from puna.gguf.file import GgufFile, TensorInfo, open_file

__all__ = ["GgufError", "GgufFile", "TensorInfo", "open_file"]
