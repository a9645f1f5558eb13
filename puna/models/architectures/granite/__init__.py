"""Granite, and others whose sums have multipliers."""
