"""The engine process: messages, the server in it, and the client that the daemon uses."""
