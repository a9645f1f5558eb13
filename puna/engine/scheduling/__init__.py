"""Which sequences take part in the next step."""
