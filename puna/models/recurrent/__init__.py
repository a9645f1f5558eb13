"""Layers that keep a state of fixed size: short convolutions, scans, gated delta nets."""
