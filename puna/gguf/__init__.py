"""The GGUF container: metadata, tensor index, quantization formats."""

from puna.gguf.errors import GgufError
from puna.gguf.file import GgufFile, open_descriptor, open_file
from puna.gguf.metadata import Metadata, ValueInfo, read_metadata
from puna.gguf.tensor_info import TensorInfo

__all__ = [
    "GgufError",
    "GgufFile",
    "Metadata",
    "TensorInfo",
    "ValueInfo",
    "open_descriptor",
    "open_file",
    "read_metadata",
]
