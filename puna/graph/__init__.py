"""The op set and the graphs made of it; knows no device and no file format."""

from puna.graph.graph import Graph, Node, Tracer, Value
from puna.graph.shapes import GraphError, Shapes, TensorShape
from puna.graph.states import FullAttention, Recurrent, SlidingWindow, StateSpec

__all__ = [
    "FullAttention",
    "Graph",
    "GraphError",
    "Node",
    "Recurrent",
    "Shapes",
    "SlidingWindow",
    "StateSpec",
    "TensorShape",
    "Tracer",
    "Value",
]
