"""Replies that are held to a grammar."""
