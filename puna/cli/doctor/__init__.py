"""`puna doctor`: what this machine can do, what is misconfigured, and what a model needs."""
