"""Methods of training on devices: parts of a network, adapters, recomputation, quantisation."""

from rpukit.tiled.methods.lora import add_lora
from rpukit.tiled.methods.narrow import store_narrow
from rpukit.tiled.methods.partial import freeze, parameter_layers, train_last, train_rows
from rpukit.tiled.methods.quantise import quantise
from rpukit.tiled.methods.recompute import recompute
from rpukit.tiled.methods.recompute_plan import plan_recomputed
from rpukit.tiled.methods.rotation import Rotation

__all__ = [
    "Rotation",
    "add_lora",
    "freeze",
    "parameter_layers",
    "plan_recomputed",
    "quantise",
    "recompute",
    "store_narrow",
    "train_last",
    "train_rows",
]
