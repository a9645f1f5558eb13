"""What the daemon asks of text workers: models whose prompts can be built, and jobs for who is free."""
