"""How long a model's steps take, learned while it runs."""

from puna._native import StepCosts

__all__ = ["StepCosts"]
