"""Grammars of llguidance, which say what a reply may be: https://github.com/guidance-ai/llguidance."""
