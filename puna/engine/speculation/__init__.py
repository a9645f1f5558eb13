"""Tokens that are guessed ahead, and verified in one step."""
