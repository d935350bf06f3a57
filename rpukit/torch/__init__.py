"""Networks of tiles for PyTorch: layers, optimisers, conversion; products with the same bits.

Tensors and the arrays that rpukit computes with share their memory (DLPack): nothing is copied. On
a GPU the kernels run on PyTorch's current stream. PyTorch is imported when it is first needed
(``pip install "rpukit[torch]"``).

``rpukit.torch.nn`` has the layers, ``rpukit.torch.optim`` the optimisers; `convert`, `to_digital`,
`program`, `drift_to`, `over_time`, `calibrate`, `change`, `save_safetensors`, `data_parallel`,
`analog_layers` and `report` work on whole models; `captured_step` makes a CUDA graph of a step of
training; `tanh` and `cross_entropy` have the same bits on
CPU and GPU. `Circuit` is a probabilistic circuit.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rpukit.torch.products import det_gemm, linear_logprob

__all__ = ["det_gemm", "linear_logprob"]

# Names that need PyTorch -> the module that defines them; None: the name is a module.
_HOME = {
    "Circuit": "circuit",
    "analog_layers": "models",
    "calibrate": "models",
    "captured_step": "graphs",
    "change": "models",
    "compensate": "models",
    "convert": "conversion",
    "cross_entropy": "functional",
    "data_parallel": "models",
    "drift_to": "models",
    "load_safetensors": "models",
    "nn": None,
    "optim": None,
    "over_time": "models",
    "program": "models",
    "report": "reporting",
    "save_safetensors": "models",
    "tanh": "functional",
    "to_digital": "conversion",
    "unprogram": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"rpukit.torch.{_HOME[name] or name}")
    value = module if _HOME[name] is None else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_HOME])
