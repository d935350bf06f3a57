"""`AnalogSettings`: what tiles of a layer are made of, and how a model is converted to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit.analog.cells import Cell
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.presets import TileConfig
from rpukit.errors import ParameterError
from rpukit.inference.grid.array import TileArray
from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.make_tiles import scale_of
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.noise.model import NoiseModel
from rpukit.random import Stream

__all__ = ["AnalogSettings", "settings_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalogSettings:
    """Settings of the tiles of a layer.

    Parameters
    ----------
    cell : Cell, InferenceCell or NoiseModel
        What sits at each cross-point.
    tile_shape : tuple of int, (n_out, n_in), or None
        Cells of a tile; None: one tile for the layer.
    analog_bias : bool
        Whether a bias is one more line of inputs of the tiles; otherwise it is a parameter of
        the layer, added to the outputs exactly.
    output_scale : OutputScale or float, optional
        Digital factors of the outputs; learned ones are a parameter of the layer. A number is a
        fixed factor.
    forward, backward : IOParameters, optional
        Converters, noise and management of the products of each tile.
    update : UpdateParameters, optional
        Conversion of gradients into pulses.
    dtype : {"float32", "float64"}
        Type of all computations of the tiles.
    count_pulses : bool
    storage : {"stored", "procedural"}
        As of `rpukit.AnalogTile`.

    Examples
    --------
    >>> import rpukit as rk
    >>> from rpukit.inference.grid.settings import AnalogSettings
    >>> fine = AnalogSettings(cell=rk.SoftBounds(), tile_shape=(128, 128), analog_bias=True)
    >>> fine.array((10, 300), bias=True, seed=1).grid
    (1, 3)
    """

    cell: Any
    tile_shape: tuple[int, int] | None = (512, 512)
    analog_bias: bool = False
    output_scale: OutputScale | None = None
    forward: IOParameters | None = None
    backward: IOParameters | None = None
    update: UpdateParameters | None = None
    dtype: str = "float32"
    count_pulses: bool = False
    storage: str = "stored"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_scale", scale_of(self.output_scale))

    def array(
        self, shape: tuple[int, int], bias: bool, seed: int | Stream, *, device: str = "cpu"
    ) -> TileArray:
        """Make the tiles of a layer.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)
        bias : bool
            Whether the layer has a bias.
        seed : int or Stream
        device : str

        Returns
        -------
        TileArray

        Raises
        ------
        ParameterError, ShapeError, DTypeError
        """
        options: dict[str, Any] = {}
        if self.count_pulses:
            options["count_pulses"] = True
        if self.storage != "stored":
            options["storage"] = self.storage
        scale = self.output_scale
        return TileArray(
            shape,
            self.cell,
            tile_shape=self.tile_shape,
            bias="analog" if bias and self.analog_bias else "none",
            output_scale=None if scale is None or scale.learned else scale,
            forward=self.forward,
            backward=self.backward,
            update=self.update,
            seed=seed,
            device=device,
            dtype=np.dtype(self.dtype),
            **options,
        )


def settings_of(given: Any) -> AnalogSettings:
    """Make settings of what a layer takes as its cell.

    Parameters
    ----------
    given : AnalogSettings, Cell, InferenceCell, NoiseModel or a configuration of `rpukit.presets`

    Returns
    -------
    AnalogSettings

    Raises
    ------
    ParameterError
    """
    if isinstance(given, AnalogSettings):
        return given
    if isinstance(given, TileConfig):
        io = {name: getattr(given, name) for name in ("forward", "backward", "update")}
        return AnalogSettings(cell=given.cell, **io)
    if isinstance(given, (Cell, InferenceCell, NoiseModel)):
        return AnalogSettings(cell=given)
    raise ParameterError(
        f"cell: got {given!r}, need a cell, an InferenceCell, a noise model, AnalogSettings or "
        "a configuration of rpukit.presets"
    )
