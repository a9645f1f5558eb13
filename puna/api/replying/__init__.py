"""Replies: from what the engine gives to the events that a face frames."""
