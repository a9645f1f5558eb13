"""The op set and the graphs made of it; knows no device and no file format."""

from puna.graph.graph import Graph, GraphError, Node, Tracer, Value
from puna.graph.ops import Attention, RopeConfig

__all__ = ["Attention", "Graph", "GraphError", "Node", "RopeConfig", "Tracer", "Value"]
