"""A NumPy-like library for learning on unconventional hardware.

Analog tiles (crossbar arrays trained by pulses) and the products under them, with kernels written
in CUDA C++ and a mirror of each on the CPU that gives the same bits.

>>> import numpy as np, rpukit as rk
>>> tile = rk.AnalogTile((2, 3), rk.Ideal(), seed=7)
>>> tile.forward(np.ones((5, 3), np.float32)).shape
(5, 2)

Names are loaded when they are first used: ``import rpukit`` imports neither Numba nor CuPy.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from rpukit._version import __version__

if TYPE_CHECKING:
    from rpukit import (
        analog,
        circuits,
        costs,
        crossbar,
        demo,
        distributed,
        elementwise,
        errors,
        estimators,
        gemm,
        inference,
        io,
        layers,
        plot,
        presets,
        random,
        studies,
        testing,
        tiled,
        torch,
        tuning,
    )
    from rpukit._warm_up import warm_up
    from rpukit._workers import get_num_threads, set_num_threads
    from rpukit.analog import (
        AnalogTile,
        BoundManagement,
        BufferedTransfer,
        ChoppedTransfer,
        ConstantStep,
        DriftParameters,
        DynamicTransfer,
        ExpStep,
        Ideal,
        IOParameters,
        LinearStep,
        MixedPrecision,
        MVType,
        NoiseManagement,
        OneSided,
        PiecewiseStep,
        PowStep,
        PowStepReference,
        PulsedCell,
        PulseType,
        Reference,
        ShardedTile,
        SoftBounds,
        SoftBoundsPmax,
        SoftBoundsReference,
        Transfer,
        UpdateParameters,
        UpdatePolicy,
        Vector,
        WeightNoise,
        check,
        register_step,
    )
    from rpukit.circuits import Circuit
    from rpukit.gemm import (
        ShardedLinear,
        det_gemm,
        det_gemm_backward,
        linear_logprob,
        linear_logprob_backward,
    )
    from rpukit.inference import (
        InferenceCell,
        InferenceTile,
        OutputScale,
        ShardedInferenceTile,
        TileArray,
    )
    from rpukit.io import load, save
    from rpukit.random import Stream
    from rpukit.summaries import Summary, summary

__all__ = [
    "AnalogTile",
    "BoundManagement",
    "BufferedTransfer",
    "ChoppedTransfer",
    "Circuit",
    "ConstantStep",
    "DriftParameters",
    "DynamicTransfer",
    "ExpStep",
    "IOParameters",
    "Ideal",
    "InferenceCell",
    "InferenceTile",
    "LinearStep",
    "MVType",
    "MixedPrecision",
    "NoiseManagement",
    "OneSided",
    "OutputScale",
    "PiecewiseStep",
    "PowStep",
    "PowStepReference",
    "PulseType",
    "PulsedCell",
    "Reference",
    "ShardedInferenceTile",
    "ShardedLinear",
    "ShardedTile",
    "SoftBounds",
    "SoftBoundsPmax",
    "SoftBoundsReference",
    "Stream",
    "Summary",
    "TileArray",
    "Transfer",
    "UpdateParameters",
    "UpdatePolicy",
    "Vector",
    "WeightNoise",
    "__version__",
    "analog",
    "check",
    "circuits",
    "costs",
    "crossbar",
    "demo",
    "det_gemm",
    "det_gemm_backward",
    "distributed",
    "elementwise",
    "errors",
    "estimators",
    "gemm",
    "get_num_threads",
    "inference",
    "io",
    "layers",
    "linear_logprob",
    "linear_logprob_backward",
    "load",
    "plot",
    "presets",
    "random",
    "register_step",
    "save",
    "set_num_threads",
    "studies",
    "summary",
    "testing",
    "tiled",
    "torch",
    "tuning",
    "warm_up",
]

# Public name -> the module that defines it. Names of `__all__` that are not here are submodules.
_HOME = {
    "AnalogTile": "analog",
    "BoundManagement": "analog",
    "BufferedTransfer": "analog",
    "ChoppedTransfer": "analog",
    "ConstantStep": "analog",
    "Circuit": "circuits",
    "DriftParameters": "analog",
    "DynamicTransfer": "analog",
    "ExpStep": "analog",
    "IOParameters": "analog",
    "Ideal": "analog",
    "InferenceCell": "inference",
    "InferenceTile": "inference",
    "LinearStep": "analog",
    "MVType": "analog",
    "MixedPrecision": "analog",
    "NoiseManagement": "analog",
    "OneSided": "analog",
    "OutputScale": "inference",
    "PiecewiseStep": "analog",
    "PowStep": "analog",
    "PowStepReference": "analog",
    "PulseType": "analog",
    "PulsedCell": "analog",
    "Reference": "analog",
    "ShardedInferenceTile": "inference",
    "ShardedLinear": "gemm",
    "ShardedTile": "analog",
    "SoftBounds": "analog",
    "SoftBoundsPmax": "analog",
    "SoftBoundsReference": "analog",
    "Stream": "random",
    "Summary": "summaries",
    "TileArray": "inference",
    "Transfer": "analog",
    "UpdateParameters": "analog",
    "UpdatePolicy": "analog",
    "Vector": "analog",
    "WeightNoise": "analog",
    "check": "analog",
    "det_gemm": "gemm",
    "det_gemm_backward": "gemm",
    "get_num_threads": "_workers",
    "linear_logprob": "gemm",
    "linear_logprob_backward": "gemm",
    "load": "io",
    "register_step": "analog",
    "save": "io",
    "set_num_threads": "_workers",
    "summary": "summaries",
    "warm_up": "_warm_up",
}

if not TYPE_CHECKING:  # a type checker would take it for "any name goes"

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'rpukit' has no attribute {name!r}")
        if name in _HOME:
            value = getattr(_import_module(f"rpukit.{_HOME[name]}"), name)
        else:
            value = _import_module(f"rpukit.{name}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)
