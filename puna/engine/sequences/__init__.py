"""Running requests: their tokens and counters, what of them goes into a step, and what they get from it."""
