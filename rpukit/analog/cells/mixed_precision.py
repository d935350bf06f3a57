"""The mixed-precision cell: a digital array accumulates gradients, devices store the weight.

Its array of weights is in ``arrays/mixed_precision.py``.

Source: Nandakumar et al., Front. Neurosci. 14:406 (2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rpukit.analog.cells import PulsedCell, SoftBounds
from rpukit.analog.cells.compound import CompoundCell, OneSided, Reference, Vector

__all__ = ["MixedPrecision"]

_DEVICES = (PulsedCell, OneSided, Reference, Vector)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPrecision(CompoundCell):
    """Mixed precision: gradients accumulate in a digital array; whole pulses go to devices.

    chi is the digital array. For sample number t = 0, 1, ... (x, d), with lr the learning rate,
    eps the granularity and P = transfer_every batch_size:

    1. ``chi += lr q(d) q(x)^T``. With B bins, ``q(v) = w clip(rint(v / w), -h, h)``, where
       ``h = B // 2`` and ``w = max|v| / h``, and rounding may be stochastic; without bins
       ``q(v) = v``.
    2. Where t > 0 is a multiple of P, for the next rows i: ``n = trunc(chi[i] / eps)``,
       ``chi[i] -= n eps``.
    3. The devices get the update ``x = n, d = onehot_i`` at the rate ``transfer_lr eps``, with
       update and bit-length management: on average ``W[i] -= transfer_lr eps n``, at most as many
       pulses as `AnalogTile.update_parameters` has slots.

    Parameters
    ----------
    device : PulsedCell, Vector, Reference or OneSided
        The devices that store the weight.
    transfer_every : int, at least 0
        Mini-batches between two transfers; 0 means never.
    n_rows_per_transfer : int, at least 1, or -1
        Rows of one transfer; -1 means all.
    random_row : bool
        Draw the first row of a transfer uniformly, instead of continuing after the last one.
    granularity : float, at least 0, weight units
        Weight change that one pulse stands for; 0 takes the granularity of the device.
    transfer_lr : float, positive
        Factor on the written change.
    n_x_bins, n_d_bins : int, 0 or at least 2
        Number of bins of the activations and of the errors; 0 turns quantisation off.
    stoc_round_x, stoc_round_d : bool
        Stochastic rounding to the bins.

    Raises
    ------
    ParameterError

    Notes
    -----
    A `OneSided` device counts one transfer as a mini-batch of its refreshes.

    Source: Nandakumar et al., "Mixed-precision deep learning based on computational memory",
    Front. Neurosci. 14:406 (2020).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> cell = rk.MixedPrecision(device=rk.SoftBounds(dw_min=0.05), n_x_bins=16, n_d_bins=16)
    >>> tile = rk.AnalogTile((2, 3), cell, seed=1)
    >>> x, d = np.ones((1, 3), np.float32), np.full((1, 2), -0.3, np.float32)
    >>> _ = tile.update(x, d, lr=0.1)  # 0.03 a sample: the second one makes a pulse of 0.05
    >>> tile.n_pulses
    0
    >>> _ = tile.update(x, d, lr=0.1)
    >>> tile.n_pulses
    6
    """

    device: PulsedCell | Vector | Reference | OneSided = field(default_factory=SoftBounds)
    transfer_every: int = 1
    n_rows_per_transfer: int = -1
    random_row: bool = False
    granularity: float = 0.0
    transfer_lr: float = 1.0
    n_x_bins: int = 0
    n_d_bins: int = 0
    stoc_round_x: bool = True
    stoc_round_d: bool = True

    def _check(self) -> None:
        need = "a pulsed cell, Vector, Reference or OneSided"
        self._need(isinstance(self.device, _DEVICES), "device", need)
        self._need(self.transfer_every >= 0, "transfer_every", "an integer from 0")
        rows = self.n_rows_per_transfer
        self._need(rows == -1 or rows >= 1, "n_rows_per_transfer", "-1 or an integer from 1")
        for name in ("n_x_bins", "n_d_bins"):
            bins = getattr(self, name)
            self._need(bins == 0 or 2 <= bins <= 1 << 24, name, "0 or an integer from 2 to 2**24")
        self._need(self.granularity >= 0, "granularity", "a number from 0")
        self._need(self.transfer_lr > 0, "transfer_lr", "a positive number")

    def parts(self) -> tuple[PulsedCell, ...]:
        return (self.device,) if isinstance(self.device, PulsedCell) else self.device.parts()

    def weights_of_parts(self) -> tuple[float, ...]:
        return (1.0,) if isinstance(self.device, PulsedCell) else self.device.weights_of_parts()

    @property
    def pulse(self) -> float:
        """Weight change eps that one pulse stands for, in weight units."""
        return self.granularity or self.device.granularity

    def rows(self, shape: tuple[int, int]) -> int:
        """Return the number of rows of one transfer.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        int
        """
        n_out = shape[0]
        return n_out if self.n_rows_per_transfer < 0 else min(self.n_rows_per_transfer, n_out)
