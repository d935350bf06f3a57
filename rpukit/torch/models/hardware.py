"""Whole models on hardware: programming, drift, compensation, ranges of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rpukit._checks import number
from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.bridge import on_device
from rpukit.torch.layers.linear import AnalogLayer

__all__ = [
    "analog_layers",
    "calibrate",
    "compensate",
    "drift_to",
    "program",
    "unprogram",
]

Tensor = Any
Module = Any


def analog_layers(model: Module) -> dict[str, AnalogLayer]:
    """List the layers of a model that have their weights in tiles.

    Parameters
    ----------
    model : Module

    Returns
    -------
    dict
        Layers by their names in the model; each layer once.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=7)
    >>> list(rk.torch.analog_layers(torch.nn.Sequential(torch.nn.Flatten(), layer)))
    ['1']
    """
    return {n: m for n, m in model.named_modules() if isinstance(m, AnalogLayer)}


def _each(model: Module, method: str, *args: Any, **options: Any) -> Module:
    """Call a method of all arrays of tiles that are made for inference."""
    layers = [layer for layer in analog_layers(model).values() if layer.array._exact]
    if not layers:
        raise ParameterError(
            f"{method}: the model has no layer of inference tiles; convert it with an "
            "InferenceCell or a noise model"
        )
    for layer in layers:
        with on_device(layer.analog_weight):
            getattr(layer.array, method)(*args, **options)
    return model


def program(model: Module, *, event: int | None = None) -> Module:
    """Write the weights of all inference tiles of a model into their cells, in place.

    Parameters
    ----------
    model : Module
    event : int, optional
        Number of the programming, which identifies its draws; default: the next one.

    Returns
    -------
    Module
        The model, at time 0.

    Raises
    ------
    ParameterError, NonFiniteError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> model = rk.torch.convert(torch.nn.Linear(4, 3), rk.inference.PCMLike(), seed=7)
    >>> model = rk.torch.drift_to(rk.torch.program(model.eval()), 86400.0)
    >>> model.array.tiles[0][0].time
    86400.0
    """
    return _each(model, "program", event=event)


def drift_to(model: Module, t: float, *, number: int = 0) -> Module:
    """Set the time after programming of all inference tiles of a model, in place.

    Tiles with a `compensation` correct their drift then.

    Parameters
    ----------
    model : Module
    t : float, at least 0, seconds
    number : int, 0 to 65535
        Of several readings at this time.

    Returns
    -------
    Module
        The model.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> cell = rk.InferenceCell(compensation="global")
    >>> model = rk.torch.program(rk.torch.convert(torch.nn.Linear(4, 3), cell, seed=7))
    >>> bool((rk.torch.drift_to(model, 3.15e7).array.tiles[0][0].alpha > 1.5).all())
    True
    """
    return _each(model, "drift_to", t, number=number)


def unprogram(model: Module) -> Module:
    """Restore the digital weights of all inference tiles of a model, in place.

    Parameters
    ----------
    model : Module

    Returns
    -------
    Module
        The model.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> digital = torch.nn.Linear(4, 3)
    >>> model = rk.torch.program(rk.torch.convert(digital, rk.inference.PCMLike(), seed=7))
    >>> torch.equal(rk.torch.unprogram(model).get_weights(), digital.weight)
    True
    """
    return _each(model, "unprogram")


def compensate(model: Module, batches: Iterable[Tensor]) -> Module:
    """Measure the statistics of batch normalisation again, with the hardware as it is now.

    Drift changes the means and variances that batch normalisation expects. Tiles correct their
    outputs by themselves if they have a `compensation`; this corrects what is left.

    Parameters
    ----------
    model : Module
    batches : iterable of Tensor
        Inputs of the model; no labels are needed.

    Returns
    -------
    Module
        The model.

    Notes
    -----
    Source: Joshi et al., Nat. Commun. 11:2473 (2020), adaptive batch normalisation.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> digital = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    >>> model = rk.torch.convert(digital, rk.inference.PCMLike(), seed=7)
    >>> model = rk.torch.drift_to(rk.torch.program(model), 3600.0)
    >>> rk.torch.compensate(model, [torch.ones(8, 4)])[1].num_batches_tracked
    tensor(1)
    """
    kinds = torch.nn.modules.batchnorm._BatchNorm
    norms = [m for m in model.modules() if isinstance(m, kinds) and m.track_running_stats]
    before = [norm.momentum for norm in norms]
    with evaluating(model):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.train()
        try:
            for x in batches:
                model(x)
        finally:
            for norm, momentum in zip(norms, before, strict=True):
                norm.momentum = momentum
    return model


def calibrate(
    model: Module,
    batches: Iterable[Tensor],
    *,
    quantile: float = 1.0,
    n_std: float | None = None,
    margin: float = 1.0,
) -> dict[str, float]:
    """Set the input ranges of the inference tiles of a model from data.

    Parameters
    ----------
    model : Module
    batches : iterable of Tensor
        Inputs of the model; no labels are needed.
    quantile : float, above 0, at most 1
        Share of the activations of a layer that should fit; the range of a layer is the mean
        over batches of this quantile of their absolute values.
    n_std : float, positive, optional
        Instead of a quantile, so many root mean squares of the activations: the mean over
        batches, as a learned `InputRange` starts.
    margin : float, positive
        Factor of the ranges.

    Returns
    -------
    dict
        Range of each layer by its name.

    Raises
    ------
    ParameterError
        Also if no layer has an `InputRange`, or there are no batches.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> cell = rk.InferenceCell(input_range=rk.inference.InputRange())
    >>> model = rk.torch.convert(torch.nn.Sequential(torch.nn.Linear(4, 3)), cell, seed=7)
    >>> rk.torch.calibrate(model, [torch.ones(8, 4), torch.full((8, 4), 2.0)])
    {'0': 1.5}
    """
    share, factor = number(quantile, "quantile", low=0, high=1), number(margin, "margin", low=0)
    spread = None if n_std is None else number(n_std, "n_std", low=0)
    if not share or not factor or spread == 0:
        raise ParameterError("quantile, n_std and margin: need positive numbers")
    layers = {n: m for n, m in analog_layers(model).items() if m.array.ranges is not None}
    if not layers:
        raise ParameterError("calibrate: no layer of the model has an InputRange")
    seen: dict[str, list[float]] = {name: [] for name in layers}

    def watch(name: str) -> Any:
        def found(_: Module, args: tuple[Tensor, ...]) -> None:
            values = args[0].detach().abs().flatten().float()
            if spread is not None:
                seen[name].append(spread * float(values.double().square().mean().sqrt()))
                return
            k = max(1, round(share * values.numel()))
            seen[name].append(float(values.kthvalue(k).values))

        return found

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        with evaluating(model):
            for x in batches:
                model(x)
    finally:
        for hook in hooks:
            hook.remove()
    found = {name: factor * sum(v) / len(v) for name, v in seen.items() if v and sum(v)}
    if not found:
        raise ParameterError("batches: there are none, or no activation is above 0")
    for name, value in found.items():
        layers[name].array.set_range(value)
    return found


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Evaluate without gradients; afterwards each module is in training where it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
