"""Other settings for the tiles of a trained model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from rpukit.analog.cells import Cell
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.tile.state import encode
from rpukit.errors import FormatError, ParameterError
from rpukit.inference.grid.array import TileArray
from rpukit.inference.grid.cell import InferenceCell
from rpukit.torch.bridge import on_device
from rpukit.torch.layers.linear import AnalogLayer
from rpukit.torch.models.hardware import analog_layers

__all__ = ["change"]

Module = Any


def change(
    model: Module,
    *,
    layers: str | Iterable[str] = "*",
    forward: IOParameters | None = None,
    backward: IOParameters | None = None,
    update: UpdateParameters | None = None,
    cell: Cell | InferenceCell | None = None,
) -> Module:
    """Give tiles of a trained model other settings, in place.

    Loading a state never changes settings silently: the state brings its own. This does it on
    purpose.

    Parameters
    ----------
    model : Module
    layers : str or iterable of str
        Names of layers, or patterns of names, as ``"encoder.*"``.
    forward, backward : IOParameters, optional
        Of all products from now on.
    update : UpdateParameters, optional
        Of tiles that learn by pulses.
    cell : Cell or InferenceCell, optional
        An `InferenceCell` gives inference tiles other noise, clipping or modifiers; they have to
        be in their digital state (`unprogram`). Another device model makes new cells: they get
        the weights of the old ones, as far as they can hold them, and no hidden weights.

    Returns
    -------
    Module
        The model. All that is not named stays: weights, hidden weights, clocks, drawn cells.

    Raises
    ------
    ParameterError
        The model is unchanged then.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> model = rk.torch.convert(torch.nn.Sequential(torch.nn.Linear(4, 3)), rk.SoftBounds())
    >>> quiet = rk.IOParameters(out_noise=0.0)
    >>> rk.torch.change(model, forward=quiet)[0].settings.forward.out_noise
    0.0
    """
    patterns = [layers] if isinstance(layers, str) else list(layers)
    every = analog_layers(model)
    chosen = {
        name: layer
        for name, layer in every.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise ParameterError(f"layers: {patterns} fit none of {list(every)}")
    periphery = {"forward": forward, "backward": backward, "update": update}
    given = {name: value for name, value in periphery.items() if value is not None}
    if not given and cell is None:
        raise ParameterError("change: need forward=, backward=, update= or cell=")
    made = {name: _changed(name, layer, given, cell) for name, layer in chosen.items()}
    for name, layer in chosen.items():
        layer.analog_weight.array = made[name]
        layer.analog_weight.samples.clear()
        options = given if cell is None else {**given, "cell": cell}
        layer.settings = replace(layer.settings, **options)
    return model


def _changed(name: str, layer: AnalogLayer, given: dict[str, Any], cell: Any) -> TileArray:
    """Make the tiles of a layer with other settings."""
    array = layer.array
    if array._exact and "update" in given:
        raise ParameterError(f"update: layer {name!r} has inference tiles, which have none")
    if cell is not None and isinstance(cell, InferenceCell) is not array._exact:
        raise ParameterError(
            f"cell: layer {name!r} has {'inference' if array._exact else 'pulsed'} tiles, got "
            f"{type(cell).__name__}; use to_digital and convert to change the kind"
        )
    with on_device(layer.analog_weight):
        if cell is not None and not array._exact:
            return _with_new_cells(layer, given, cell)
        copied = array.copy()
        for tile in copied:
            _with_periphery(tile, given)
        state = copied.state()
        if cell is not None:
            for header in state["header"]["tiles"].values():
                _to_cell(name, header, cell)
        try:
            return TileArray.from_state(state, array.device)
        except FormatError as error:  # settings that do not go together
            raise ParameterError(f"layer {name!r}: {error}") from error


def _with_periphery(tile: Any, given: dict[str, Any]) -> None:
    """Give a tile other products and updates; what its periphery has drawn is drawn anew."""
    if "update" in given:
        tile.update_parameters = given["update"]
    for turned, way in enumerate(("forward", "backward")):
        if way in given:
            setattr(tile, f"{way}_parameters", given[way])
            managed = way == "forward" and hasattr(tile, "_periphery")
            io = tile._periphery() if managed else given[way]
            more = {"transposed": bool(turned), "dtype": tile.dtype}
            made = ForwardState(io, tile.shape[turned], tile.stream, tile._device, **more)
            tile._states[way] = made


def _to_cell(name: str, header: dict[str, Any], cell: InferenceCell) -> None:
    """Write the settings of inference tiles to the header of one."""
    if header["now"]["mode"] == "programmed":
        raise ParameterError(f"cell: layer {name!r} is programmed; call unprogram first")
    if cell.input_range is not None and header["input_range"] is None:
        header["now"]["range"] = cell.input_range.value
    for key, value in cell.options().items():
        if key == "compensation":
            header[key] = value.value
        elif key == "w_max":
            header[key] = value
        else:
            header[key] = None if value is None else encode(value)


def _with_new_cells(layer: AnalogLayer, given: dict[str, Any], cell: Cell) -> TileArray:
    array = layer.array
    settings = replace(layer.settings, **given, cell=cell)
    stream = array.tiles[0][0].stream.child(1)  # the draws of the old cells are not used again
    made = settings.array(array.shape, array.bias_kind != "none", stream).to(array.device)
    made.set_weights(array.get_weights(), array.get_bias())
    return made
