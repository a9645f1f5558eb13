"""Models that multiply what attention sees by gates."""
