"""Models that make one vector, or scores, of a whole text, of which every token sees the others."""
