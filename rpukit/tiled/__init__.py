"""Training of graphs, planned tile by tile over levels of memory."""

from rpukit.tiled import methods, ops
from rpukit.tiled.calibration.calibrate import Calibration, calibrate
from rpukit.tiled.graph.builder import Builder
from rpukit.tiled.graph.epilogues import fuse, fuse_epilogues
from rpukit.tiled.graph.fusion import fuse_activations, fuse_updates
from rpukit.tiled.graph.make import Graph, make_graph
from rpukit.tiled.graph.onnx import from_onnx, training_from_onnx
from rpukit.tiled.graph.optimisers import SGD, Adam, MomentumSGD
from rpukit.tiled.graph.pointwise_fusion import fuse_pointwise
from rpukit.tiled.ir import Node, Tensor, Training
from rpukit.tiled.machine import Compute, Hierarchy, Level, gpu, siracusa_l2, siracusa_l3
from rpukit.tiled.plan import Plan
from rpukit.tiled.planner.addresses import Block, live_bytes, pack, read_csv, write_csv
from rpukit.tiled.planner.homes import Candidate, promote
from rpukit.tiled.planner.planner import plan
from rpukit.tiled.rates import Rate
from rpukit.tiled.reports.sweeps import (
    LevelSweep,
    TargetComparison,
    compare_targets,
    sweep_levels,
)
from rpukit.tiled.reports.trace import trace_events, write_trace
from rpukit.tiled.runtime.codegen.generate import generate_c
from rpukit.tiled.runtime.cpu import CpuExecutor
from rpukit.tiled.runtime.gpu import GpuExecutor
from rpukit.tiled.runtime.report import compare_plans
from rpukit.tiled.runtime.trainer import Trainer
from rpukit.tiled.tile_space import Axis, Operand, TileSpace
from rpukit.tiled.verify.check_plan import check_plan, find_faults
from rpukit.tiled.verify.hazards import find_hazards
from rpukit.tiled.verify.simulate import simulate

__all__ = [
    "SGD",
    "Adam",
    "Axis",
    "Block",
    "Builder",
    "Calibration",
    "Candidate",
    "Compute",
    "CpuExecutor",
    "GpuExecutor",
    "Graph",
    "Hierarchy",
    "Level",
    "LevelSweep",
    "MomentumSGD",
    "Node",
    "Operand",
    "Plan",
    "Rate",
    "TargetComparison",
    "Tensor",
    "TileSpace",
    "Trainer",
    "Training",
    "calibrate",
    "check_plan",
    "compare_plans",
    "compare_targets",
    "find_faults",
    "find_hazards",
    "from_onnx",
    "fuse",
    "fuse_activations",
    "fuse_epilogues",
    "fuse_pointwise",
    "fuse_updates",
    "generate_c",
    "gpu",
    "live_bytes",
    "make_graph",
    "methods",
    "ops",
    "pack",
    "plan",
    "promote",
    "read_csv",
    "simulate",
    "siracusa_l2",
    "siracusa_l3",
    "sweep_levels",
    "trace_events",
    "training_from_onnx",
    "write_csv",
    "write_trace",
]
