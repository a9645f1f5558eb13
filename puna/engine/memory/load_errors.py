"""Why a model that can be run is not in memory."""

from __future__ import annotations

from puna.backends.base import ModelLoadError


class ModelDoesNotFit(ModelLoadError):
    """There is too little memory for a model, beside what others hold; the text says who holds what."""
