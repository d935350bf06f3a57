"""Closed-loop programming of training tiles: pulses until the readout matches the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, instance, integer, number
from rpukit._kernels.calls import exclusive
from rpukit.analog import AnalogTile
from rpukit.errors import NonFiniteError, ShapeError
from rpukit.inference.training.sums import total

__all__ = ["WriteVerify", "write_verify"]

Array = Any
_SETTLING = 50  # rounds after which the learning rate has halved


class LearningTile(Protocol):
    """Interface of a tile that write-verify needs."""

    shape: tuple[int, int]

    @property
    def device(self) -> str: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def forward(self, x: Array) -> Array: ...

    def update(self, x: Array, d: Array, lr: float) -> Any: ...

    def get_weights(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class WriteVerify:
    """Result of closed-loop programming: convergence, error and missed cells.

    Attributes
    ----------
    converged : bool
        Whether the mean error reached the tolerance.
    n_round : int
        Rounds of reading and pulsing.
    error : float
        Mean absolute error of the weights, as a share of the largest target.
    missed : array, shape (n_out, n_in), bool
        Cells whose own error is beyond the tolerance, on the tile's device.
    history : tuple of float
        The error at each check.
    """

    converged: bool
    n_round: int
    error: float
    missed: Array
    history: tuple[float, ...]

    def __str__(self) -> str:
        share = 100 * float(self.missed.mean())
        end = "converged" if self.converged else "did not converge"
        return (
            f"{end} after {self.n_round} rounds: mean error {100 * self.error:.3g} %, "
            f"{share:.3g} % of the cells missed"
        )


def write_verify(
    tile: LearningTile,
    target: Array,
    *,
    tolerance: float = 0.01,
    lr: float = 0.1,
    n_read: int = 1,
    max_rounds: int = 1000,
    check_every: int = 10,
) -> WriteVerify:
    """Program a training tile in a closed loop of pulses and readings, in place.

    Each round reads all columns by unit inputs through the tile's own periphery, and sends the
    pulses of a gradient step on the error. The learning rate falls as ``1 / (1 + round / 50)``,
    which averages over the noise of reading. What noise is left in the error sends pulses both
    ways; a cell whose steps up and down differ is moved by that: more `n_read` helps.

    Parameters
    ----------
    tile : AnalogTile
        Any cell; a stored reference device is part of the tile and stays as it is.
    target : array, shape (n_out, n_in), dtype of the tile, weight units
    tolerance : float, positive
        Mean absolute error to reach, as a share of the largest target.
    lr : float, positive
        Learning rate of the first rounds.
    n_read : int, at least 1
        Readings that are averaged in a round.
    max_rounds : int, at least 1
    check_every : int, at least 1
        Rounds between checks of the error, which synchronise with a GPU.

    Returns
    -------
    WriteVerify
        Whether the loop converged, and which cells missed their targets.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError, NonFiniteError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> from rpukit.inference import write_verify
    >>> tile = rk.AnalogTile((4, 6), rk.ConstantStep(dw_min=0.002), seed=7,
    ...                      forward=rk.IOParameters(is_perfect=True))
    >>> target = np.linspace(-0.2, 0.2, 24, dtype=np.float32).reshape(4, 6)
    >>> write_verify(tile, target, tolerance=0.02).converged
    True
    """
    instance(tile, (AnalogTile,), "tile")
    place = _device.parse_device(tile.device)
    array = _device.as_array(target, place, tile.dtype, "target")
    if array.shape != tuple(tile.shape):
        raise ShapeError(f"target: got shape {tuple(array.shape)}, need {tuple(tile.shape)}")
    host = _device.to_numpy(array)
    if not np.isfinite(host).all():
        raise NonFiniteError("target holds NaN or infinity; the tile is unchanged")
    for name, value in (("tolerance", tolerance), ("lr", lr)):
        number(value, name, low=TINY, need="a positive number")
    counts = {"n_read": n_read, "max_rounds": max_rounds, "check_every": check_every}
    for name, count in counts.items():
        integer(count, name, low=1)
    alone = exclusive(_converge, "write_verify")
    return alone(tile, array, tolerance, lr, n_read, max_rounds, check_every)


def _converge(
    tile: LearningTile,
    target: Array,
    tolerance: float,
    lr: float,
    n_read: int,
    max_rounds: int,
    check_every: int,
) -> WriteVerify:
    """Repeat rounds until the error is small enough, with no other thread between them."""
    xp = _device.namespace(target)
    largest = float(abs(target).max()) or 1.0
    unit = xp.eye(tile.shape[1], dtype=tile.dtype)
    wanted = xp.ascontiguousarray(target.T)
    history: list[float] = []
    n_round = 0
    error, missed = _compare(tile, target, largest, tolerance)
    while error > tolerance and n_round < max_rounds:
        for _ in range(min(check_every, max_rounds - n_round)):
            tile.update(unit, _read(tile, unit, n_read) - wanted, lr / (1 + n_round / _SETTLING))
            n_round += 1
        error, missed = _compare(tile, target, largest, tolerance)
        history.append(error)
    return WriteVerify(error <= tolerance, n_round, error, missed, tuple(history))


def _read(tile: LearningTile, unit: Array, n_read: int) -> Array:
    """Average readings, in their order."""
    y = tile.forward(unit)
    for _ in range(n_read - 1):
        y = y + tile.forward(unit)
    return y / y.dtype.type(n_read)


def _compare(
    tile: LearningTile, target: Array, largest: float, tolerance: float
) -> tuple[float, Array]:
    """Measure the mean error, and find the cells that are too far off."""
    off = abs(tile.get_weights().astype(np.float64) - target) / largest
    return total(off) / off.size, off > tolerance
