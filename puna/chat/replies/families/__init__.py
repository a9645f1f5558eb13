"""Formats in which models write tool calls, a file for each family."""
