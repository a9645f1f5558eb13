"""Models with experts, some of whose layers see the latest tokens only."""
