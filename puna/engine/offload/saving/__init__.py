"""Cached prefixes on their way to disk."""
