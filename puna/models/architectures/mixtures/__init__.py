"""Models with experts, some of which all tokens may share."""
