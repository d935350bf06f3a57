"""`OutputScale`: digital factors between the outputs of tiles and those of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import number, one_of

__all__ = ["OutputScale"]

Array = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputScale:
    """Digital factors of the outputs of a `rpukit.TileArray`.

    A layer multiplies by ``scale * w``, where w are the weights in the cells. The cells then use
    their range well, whatever the size of the weights of the layer is.

    Parameters
    ----------
    per : {"tensor", "column"}
        One factor for the matrix, or one for each output.
    omega : float, at least 0, weight units
        If positive, ``set_weights`` chooses the factors so that the largest weight in the cells,
        of the matrix or of each output, is omega. 0: the factors stay as they are.
    value : float, positive
        The factors before ``set_weights`` or learning changes them.
    learned : bool
        Whether ``update_scales`` may change the factors.
    compensates_rate : bool
        Whether updates divide the errors by the factors, so that the weights of the layer change
        by ``-lr d x^T``. Otherwise the weights in the cells take the gradient of the loss by
        themselves: the weights of the layer change by ``-lr scale^2 d x^T``.

    Raises
    ------
    ParameterError, DTypeError

    Notes
    -----
    `omega` has the meaning of ``weight_scaling_omega`` of aihwkit.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> array = rk.TileArray((2, 3), rk.SoftBounds(), output_scale=rk.OutputScale(omega=0.5))
    >>> _ = array.set_weights(np.full((2, 3), 4, np.float32))
    >>> array.scales
    array([8., 8.], dtype=float32)
    """

    per: str = "tensor"
    omega: float = 0.0
    value: float = 1.0
    learned: bool = False
    compensates_rate: bool = False

    def __post_init__(self) -> None:
        one_of(self.per, "per", ("tensor", "column"))
        object.__setattr__(self, "omega", number(self.omega, "omega", low=0))
        above = "a positive number"
        value = number(self.value, "value", low=float(np.finfo(np.float32).tiny), need=above)
        object.__setattr__(self, "value", value)

    def fitted(self, weight: Array, scales: Array) -> Array:
        """Compute the factors for new weights of the layer.

        Parameters
        ----------
        weight : array, shape (n_out, n_in)
        scales : array, shape (n_out,)
            The present factors.

        Returns
        -------
        array, shape (n_out,), dtype of `scales`
        """
        if not self.omega:
            return scales
        xp = _device.namespace(weight)
        largest = abs(weight).max(axis=1)
        if self.per == "tensor":
            largest = xp.full_like(largest, largest.max())
        found = largest / largest.dtype.type(self.omega)
        return xp.where(found > 0, found, scales).astype(scales.dtype)
