"""KV memory for other processes: gRPC on a Unix socket, and named shared memory."""
