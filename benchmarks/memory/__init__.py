"""What one memory for many models brings, beside a llama.cpp server for each with KV of a fixed size."""
