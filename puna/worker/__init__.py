"""Children of the daemon: typed calls to them, their processes, and what each kind does."""
