"""Training of graphs, planned tile by tile over levels of memory."""

from rpukit.tiled import ops
from rpukit.tiled.alloc import Block, live_bytes, pack, read_csv, write_csv
from rpukit.tiled.build import make_graph
from rpukit.tiled.builder import Builder
from rpukit.tiled.check import check_plan, find_faults
from rpukit.tiled.codegen import generate_c
from rpukit.tiled.cpu_executor import CpuExecutor
from rpukit.tiled.fuse import fuse_activations, fuse_updates
from rpukit.tiled.gpu_executor import GpuExecutor
from rpukit.tiled.graph import Graph, Node, Tensor, Training
from rpukit.tiled.levels import Compute, Hierarchy, Level, gpu, siracusa_l2, siracusa_l3
from rpukit.tiled.onnx import from_onnx, training_from_onnx
from rpukit.tiled.optimisers import SGD, Adam, MomentumSGD
from rpukit.tiled.planner import plan
from rpukit.tiled.plans import Plan
from rpukit.tiled.promotion import Candidate, promote
from rpukit.tiled.races import find_hazards
from rpukit.tiled.report import compare_plans
from rpukit.tiled.space import Axis, Operand, TileSpace
from rpukit.tiled.timeline import simulate
from rpukit.tiled.trainer import Trainer

__all__ = [
    "SGD",
    "Adam",
    "Axis",
    "Block",
    "Builder",
    "Candidate",
    "Compute",
    "CpuExecutor",
    "GpuExecutor",
    "Graph",
    "Hierarchy",
    "Level",
    "MomentumSGD",
    "Node",
    "Operand",
    "Plan",
    "Tensor",
    "TileSpace",
    "Trainer",
    "Training",
    "check_plan",
    "compare_plans",
    "find_faults",
    "find_hazards",
    "from_onnx",
    "fuse_activations",
    "fuse_updates",
    "generate_c",
    "gpu",
    "live_bytes",
    "make_graph",
    "ops",
    "pack",
    "plan",
    "promote",
    "read_csv",
    "simulate",
    "siracusa_l2",
    "siracusa_l3",
    "training_from_onnx",
    "write_csv",
]
