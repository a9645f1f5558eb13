"""Architectures, each written once as a graph."""

from puna.models.architectures import ARCHITECTURES
from puna.models.drafters import OF_DRAFTER, is_drafter, trace_drafter
from puna.models.tracing import TracedModel, trace_model

__all__ = ["ARCHITECTURES", "OF_DRAFTER", "TracedModel", "is_drafter", "trace_drafter", "trace_model"]
