"""Which models are resident: loaded, asleep, leaving, and what does not fit."""
