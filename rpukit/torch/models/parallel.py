"""Data-parallel training: one model on several processes, with the same tiles on all of them."""

from __future__ import annotations

import hashlib
from typing import Any

from rpukit.analog.parameters.io import NoiseManagement
from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.models.hardware import analog_layers

__all__ = ["data_parallel"]

Module = Any


def data_parallel(model: Module, group: Any = None, **options: Any) -> Module:
    """Train a model on the processes of a group, each with its share of every mini-batch.

    Parameters
    ----------
    model : Module
        The same on all processes, with the same states of its tiles.
    group : ProcessGroup, optional
        Default: all processes of ``torch.distributed``.
    **options
        Of ``torch.nn.parallel.DistributedDataParallel``.

    Returns
    -------
    DistributedDataParallel
        The model with averaged gradients of its digital parameters.

    Raises
    ------
    ParameterError
        Without a process group, or if tiles differ between processes.

    Notes
    -----
    Every process keeps all tiles. At a step the samples x and d of all processes are gathered, in
    the order of their ranks, divided by the number of processes as gradients are, and each
    process makes all updates: with the same draws, so that tiles stay the same to the bit, learn
    by pulses or exactly, and have the bits of one process with the whole mini-batch. For that,
    process r of n takes the numbers of the r-th part of the samples of each product; a call has
    to have as many samples on each process.

    Examples
    --------
    >>> import torch, rpukit as rk  # doctest: +SKIP
    >>> torch.distributed.init_process_group("gloo")  # doctest: +SKIP
    >>> model = rk.torch.data_parallel(rk.torch.convert(net, rk.SoftBounds()))  # doctest: +SKIP
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        raise ParameterError("group: there is none; call torch.distributed.init_process_group")
    layers = analog_layers(model)
    for name, layer in layers.items():
        tile = layer.array.tiles[0][0]
        if layer.analog_weight.counts:
            raise ParameterError(
                f"model: layer {name!r} manages the clipping of its outputs, which each process "
                "would count for its own samples; use manage_output_clipping=False"
            )
        for io in (tile.forward_parameters, tile.backward_parameters):
            if io.noise_management is NoiseManagement.AVERAGE_ABS_MAX:
                raise ParameterError(
                    f"model: layer {name!r} averages the largest inputs of its calls "
                    "(AVERAGE_ABS_MAX), which differ between processes; use ABS_MAX"
                )
    own = {name: _digest(layer) for name, layer in layers.items()}
    found: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(found, own, group=group)
    differing = [name for name in own if any(other.get(name) != own[name] for other in found)]
    if differing or any(other.keys() != own.keys() for other in found):
        raise ParameterError(
            f"model: layers {differing} differ between processes; give convert the same seed, or "
            "load the same state"
        )
    for layer in layers.values():
        layer.analog_weight.group = group or distributed.group.WORLD
    return torch.nn.parallel.DistributedDataParallel(model, process_group=group, **options)


def _digest(layer: Any) -> str:
    """Hash the whole state of the tiles of a layer."""
    state = layer.get_extra_state()
    found = hashlib.sha256(state["header"].encode())
    for name, array in sorted(state["arrays"].items()):
        found.update(name.encode() + array.contiguous().numpy().tobytes())
    return found.hexdigest()
