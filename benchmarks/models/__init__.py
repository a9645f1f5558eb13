"""Every architecture beside llama.cpp: which checks it passes, how fast it is; writes docs/models.md."""
