"""Reads and weight processes of a tile: get, set, decay, drift, diffuse, reset."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import did_you_mean, integer, number
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.arrays.base import WeightArray
from rpukit.analog.arrays.single import checked_array
from rpukit.analog.deferred_errors import Guard, check_finite
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

Array = Any


@enters_device()
class Processes:
    """Mixin of `AnalogTile`: reading and setting weights, and the weight processes."""

    shape: tuple[int, int]
    _device: _device.Device
    _dtype: np.dtype[Any]
    _guard: Guard
    _call_state: CallState
    _unit: WeightArray

    def get_weights(self) -> Array:
        """Read the weights exactly, without the periphery.

        Returns
        -------
        array, shape (n_out, n_in), dtype of the tile
            A copy on the tile's device; reading synchronises.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        return self._unit.weight.copy()

    @changes
    def set_weights(self, weight: Array) -> Any:
        """Set the weights, clipped to the bounds of their cells, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), dtype of the tile

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        array = _device.as_array(weight, self._device, self._dtype, "weight")
        if array.shape != self.shape:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, need {self.shape}")
        if _device.runs_kernels(_device.namespace(array)):
            call = self._guard.begin("weight")
            check_finite(array, status=self._guard.status, call=call)
            self._guard.check()
        elif not np.isfinite(array).all():
            raise NonFiniteError("weight holds NaN or infinity; the tile is unchanged")
        self._unit.context.check_room()
        self._call_state.changing()
        self._unit.store(array)
        return self

    @changes
    def set_cells(self, **arrays: Array) -> Any:
        """Replace per-cell parameters, for instance by measured ones, in place.

        Parameters
        ----------
        **arrays : array, shape (n_out, n_in), dtype of the tile
            Any of the names of `cells`. Weights are clipped to new bounds.

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError, NonFiniteError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1)
        >>> _ = tile.set_cells(w_max=np.full((2, 3), 0.5, np.float32))
        >>> float(tile.cells["w_max"].max())
        0.5
        """
        self._unit.context.check_room()
        _replace_cells(self._unit, arrays)
        return self

    @changes
    def decay(self, alpha: float = 1.0) -> Any:
        """Let the weights relax towards their resting point once, in place.

        ``w = (w - b)(1 + alpha (s - 1)) + b``, ``s = 1 - 1 / lifetime``, b the resting point.

        Parameters
        ----------
        alpha : float, at least 0
            Scale of the decay rate.

        Returns
        -------
        AnalogTile
            Itself, unchanged if the cells have no lifetime.

        Raises
        ------
        ParameterError
        """
        rate = number(alpha, "alpha", low=0)
        self._unit.context.check_room()
        self._call_state.changing()
        self._unit.decay(rate)
        return self

    @changes
    def diffuse(self) -> Any:
        """Let the weights take one step of their random walk, in place.

        Returns
        -------
        AnalogTile
            Itself, unchanged if the cells have no diffusion.
        """
        self._unit.context.check_room()
        self._call_state.changing()
        self._unit.diffuse()
        return self

    @changes
    def drift(self, dt: float = 1.0) -> Any:
        """Let the weights drift for a time, in place.

        Parameters
        ----------
        dt : float, at least 0, seconds (units of ``DriftParameters.t_0``)

        Returns
        -------
        AnalogTile
            Itself, unchanged if the cells have no `DriftParameters`.

        Raises
        ------
        ParameterError

        Notes
        -----
        A weight that changed since the last call counts as newly written: its drift starts again,
        and it does not drift in this call. The formula is in `DriftParameters`.
        """
        seconds = number(dt, "dt", low=0, need="a number of seconds from 0")
        self._unit.context.check_room()
        self._call_state.changing()
        self._unit.drift(seconds)
        return self

    @changes
    def reset(self, first_col: int = 0, n_col: int | None = None, prob: float = 1.0) -> Any:
        """Reset columns to their resting points with a spread of ``reset_std``, in place.

        Parameters
        ----------
        first_col : int, 0 to n_in - 1
        n_col : int, 0 to n_in, optional
            Number of columns, counted modulo n_in; default: all.
        prob : float, 0 to 1
            Probability that a cell is reset.

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ParameterError
        """
        n_in = self.shape[1]
        first = integer(first_col, "first_col", low=0, high=n_in - 1, what="a column of the tile")
        n = n_in if n_col is None else integer(n_col, "n_col", low=0, high=n_in, what="columns")
        chance = number(prob, "prob", low=0, high=1)
        if n:
            self._unit.context.check_room()
            self._call_state.changing()
            self._unit.reset(first, n, chance)
        return self

    @changes
    def post_step(self) -> Any:
        """Diffuse, then decay, in place: the weight processes of one mini-batch.

        Returns
        -------
        AnalogTile
            Itself.
        """
        self.diffuse()
        self.decay()
        return self


def _replace_cells(array: WeightArray, arrays: dict[str, Array]) -> None:
    """Replace per-cell parameters of an array: all of those given, or none on an error."""
    if array.context.procedural:
        raise ParameterError(
            'cells: a tile with storage="procedural" stores no cells to set: set those of '
            'tile.copy(storage="stored")'
        )
    known = array.cells
    ready = {}
    for name, given in arrays.items():
        if name not in known:
            raise ParameterError(
                f"{name}: not a parameter of these cells, need one of {sorted(known)}"
                f"{did_you_mean(name, known)}"
            )
        ready[name] = checked_array(given, array.context, name)
    for low_name in [name for name in known if name.endswith("w_min")]:
        high_name = low_name[: -len("w_min")] + "w_max"
        low: Array = ready.get(low_name, known[low_name])
        high: Array = ready.get(high_name, known[high_name])
        if bool((low > high).any()):
            raise ParameterError(f"{low_name} is above {high_name} in some cells")
    array.context.changing()
    for name, given in ready.items():
        known[name][...] = given
    array.settle()
