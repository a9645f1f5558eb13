"""How puna serves many requests, beside llama.cpp's server: shared prefixes, latency, speculation, memory."""
