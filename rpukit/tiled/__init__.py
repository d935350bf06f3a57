"""Training of graphs, planned tile by tile over levels of memory."""

from rpukit.tiled import ops
from rpukit.tiled.build import make_graph
from rpukit.tiled.graph import Graph, Node, Tensor, Training
from rpukit.tiled.onnx import from_onnx, training_from_onnx
from rpukit.tiled.space import Axis, Operand, TileSpace

__all__ = [
    "Axis",
    "Graph",
    "Node",
    "Operand",
    "Tensor",
    "TileSpace",
    "Training",
    "from_onnx",
    "make_graph",
    "ops",
    "training_from_onnx",
]
