"""What the engine tells of itself."""
