"""Replies that are held to a grammar: compiled by llguidance, as masks for the sampler."""
