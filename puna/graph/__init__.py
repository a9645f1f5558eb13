"""The op set and the graphs made of it; knows no device and no file format."""

from puna.graph.graph import Graph, GraphError, Node, Tracer, Value
from puna.graph.ops import Attention, RopeConfig
from puna.graph.states import FullAttention, SlidingWindow, StateSpec

__all__ = [
    "Attention",
    "FullAttention",
    "Graph",
    "GraphError",
    "Node",
    "RopeConfig",
    "SlidingWindow",
    "StateSpec",
    "Tracer",
    "Value",
]
