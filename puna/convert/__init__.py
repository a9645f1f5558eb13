"""Other people's weights as GGUF: safetensors directories, adapters, split and requantized GGUF files.

Everything here reads untrusted files from descriptors and writes one GGUF file; it runs in a caged worker
(puna/worker/convert). See docs/model-files.md.
"""
