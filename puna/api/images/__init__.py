"""Images that clients send: what they are, and whether they may be shown to a model."""
