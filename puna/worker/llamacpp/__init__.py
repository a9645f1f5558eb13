"""The second engine's worker: it hosts llama.cpp's server for one model, and answers as an engine worker."""
