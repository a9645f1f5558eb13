"""Models without rotation, whose scores fall with distance."""
