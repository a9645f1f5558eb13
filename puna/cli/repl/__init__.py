"""The conversation of `puna run`."""
