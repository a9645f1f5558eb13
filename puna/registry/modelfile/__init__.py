"""Modelfiles: what a model is made of, as text."""
