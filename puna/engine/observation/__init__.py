"""Counters, traces and statistics of the engine."""
