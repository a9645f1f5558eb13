"""Models whose norms take away the mean."""
