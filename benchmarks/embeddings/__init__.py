"""Texts to vectors, and passages ranked: beside llama.cpp's server and ONNX Runtime."""
