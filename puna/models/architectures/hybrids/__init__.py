"""Models some or all of whose layers keep a state of fixed size."""
