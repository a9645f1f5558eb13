"""Families that write their calls in JSON."""
