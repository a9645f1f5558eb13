"""The memory of all models: what gives way when it is short, and how models get theirs."""
