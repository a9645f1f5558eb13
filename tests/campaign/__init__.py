"""Real daemons under load, with faults, and for long: `python -m tests.campaign.faults`, `... .soak`."""
