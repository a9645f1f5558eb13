"""Architectures, each written once as a graph."""

from puna.models.architectures import ARCHITECTURES
from puna.models.tracing import TracedModel, trace_model

__all__ = ["ARCHITECTURES", "TracedModel", "trace_model"]
