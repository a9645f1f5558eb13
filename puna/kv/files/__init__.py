"""What outlives a process on disk: cached blocks, saved sessions, and the key that makes files believable."""
