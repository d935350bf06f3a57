"""Conversion of models between digital layers and layers of tiles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from rpukit.errors import ParameterError
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.layers.attention import AnalogMultiheadAttention
from rpukit.torch.layers.convolutions import AnalogConv1d, AnalogConv2d, AnalogConv3d
from rpukit.torch.layers.grouped import AnalogGroupedConv
from rpukit.torch.layers.linear import AnalogLayer, AnalogLinear
from rpukit.torch.layers.recurrent import AnalogGRU, AnalogLSTM, AnalogRNN, _AnalogRecurrent
from rpukit.torch.settings import settings_of

__all__ = ["convert", "to_digital"]

Module = Any
_CLASSES = (
    *(AnalogLinear, AnalogConv1d, AnalogConv2d, AnalogConv3d),
    *(AnalogRNN, AnalogLSTM, AnalogGRU, AnalogMultiheadAttention),
)
# Where these stay digital, so do their parts, whose weights they read directly.
_WHOLE = (torch.nn.MultiheadAttention,)


def convert(
    model: Module,
    cell: Any,
    *,
    overrides: Mapping[Any, Any] | None = None,
    exclude: Iterable[Any] = (),
    seed: int | Stream = 0,
    inplace: bool = False,
) -> Module:
    """Make a model whose linear, convolutional and recurrent layers have their weights in tiles.

    Parameters
    ----------
    model : Module
    cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        Of all layers that `overrides` does not name.
    overrides : mapping, optional
        From a layer's name, a pattern of names such as "encoder.*", or a class of layers, to
        what takes the place of `cell` there; None leaves the layer digital. Names come before
        patterns, and patterns before classes.
    exclude : iterable of str or type
        Names, patterns and classes that stay digital.
    seed : int or Stream
        Layer number k of those that could be converted draws from child k.
    inplace : bool
        Whether the model itself is changed; otherwise it stays as it is.

    Returns
    -------
    Module
        With the same weights, as far as the cells can hold them.

    Raises
    ------
    ParameterError
        Also if a name or class is nowhere in the model, or nothing is converted.

    Notes
    -----
    Taken are Linear, Conv1d to Conv3d, RNN, LSTM, GRU, MultiheadAttention and Hugging Face's
    Conv1D. Convolutions with groups are taken only where `overrides` fit them: each group is a
    matrix of its own, for depthwise ones of a few cells. A weight that two layers share is copied
    to both.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> from torch.nn import Linear, ReLU
    >>> digital = torch.nn.Sequential(Linear(8, 6), ReLU(), Linear(6, 2))
    >>> model = rk.torch.convert(digital, rk.SoftBounds(), exclude=["2"], seed=7)
    >>> [type(layer).__name__ for layer in model]
    ['AnalogLinear', 'ReLU', 'Linear']
    """
    settings_of(cell)
    given = dict(overrides or {})
    chosen = {key: None if of is None else settings_of(of) for key, of in given.items()}
    chosen |= dict.fromkeys(exclude)
    stream, used, count = Stream.from_seed(seed), set(), [0, 0]

    def choose(name: str, module: Module) -> Module | None:
        keys = sorted((key for key in chosen if _fits(key, name, module)), key=_rank)
        found = chosen[keys[0]] if keys else cell
        make = _analog_class(module)
        if make is None and found is not None and keys and _is_grouped(module):
            make = AnalogGroupedConv
        if make is not None or found is None:
            used.update(keys)
        if make is None:
            return module if found is None or isinstance(module, _WHOLE) else None
        child, count[0] = stream.child(count[0]), count[0] + 1
        if found is None:
            return module
        count[1] += 1
        return make(module, found, seed=child)

    converted = _replaced(model, choose, inplace)
    unknown = [key for key in chosen if key not in used]
    if unknown:
        raise ParameterError(
            f"overrides and exclude: {unknown} fit no layer that can be converted"
        )
    if not count[1]:
        raise ParameterError("convert: the model has no layer that tiles can take")
    return converted


def to_digital(model: Module, *, inplace: bool = False) -> Module:
    """Make a model of PyTorch's layers, with the weights that the products see now.

    Parameters
    ----------
    model : Module
    inplace : bool
        Whether the model itself is changed.

    Returns
    -------
    Module

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> digital = torch.nn.Sequential(torch.nn.Linear(8, 6))
    >>> model = rk.torch.convert(digital, rk.Ideal(), seed=7)
    >>> torch.equal(rk.torch.to_digital(model)[0].weight, digital[0].weight)
    True
    """
    kinds = (AnalogLayer, _AnalogRecurrent, AnalogMultiheadAttention, AnalogGroupedConv)

    def choose(_: str, module: Module) -> Module | None:
        return module.to_digital() if isinstance(module, kinds) else None

    return _replaced(model, choose, inplace)


def _analog_class(module: Module) -> Callable[..., Module] | None:
    """Return what makes the analog form of a module, if there is one."""
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):  # of Hugging Face
        return _from_transposed
    if getattr(module, "groups", 1) != 1 or getattr(module, "proj_size", 0):
        return None
    if getattr(module, "bias_k", None) is not None or getattr(module, "add_zero_attn", False):
        return None
    for kind in _CLASSES:
        if type(module) is kind.DIGITAL:
            return kind.from_digital
    return None


def _is_grouped(module: Module) -> bool:
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return type(module) in kinds and module.groups > 1


def _from_transposed(module: Module, cell: Any, *, seed: Any) -> AnalogLinear:
    weight = module.weight.detach().T
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0]).to(weight.device, weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(module.bias)
    return AnalogLinear.from_digital(linear.train(module.training), cell, seed=seed)


def _fits(key: Any, name: str, module: Module) -> bool:
    return isinstance(module, key) if isinstance(key, type) else fnmatchcase(name, key)


def _rank(key: Any) -> int:
    """Order of the keys: names, patterns, classes."""
    if isinstance(key, type):
        return 2
    return int(any(mark in key for mark in "*?["))


def _replaced(
    model: Module, choose: Callable[[str, Module], Module | None], inplace: bool
) -> Module:
    """Replace parts of a model; `choose` gives the new part, or None to look into the old one."""
    done: dict[int, tuple[Module, Module]] = {}  # old ones, so that their ids stay theirs

    def walk(module: Module, name: str) -> Module:
        if id(module) not in done:
            new = choose(name, module)
            done[id(module)] = (module, module if new is None else new)
            if new is None:
                for key, child in list(module._modules.items()):
                    if child is not None:
                        module._modules[key] = walk(child, f"{name}.{key}" if name else key)
        return done[id(module)][1]

    return walk(model if inplace else copy.deepcopy(model), "")
