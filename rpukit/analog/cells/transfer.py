"""Transfer cells (TTv1 and TTv2): a fast array accumulates gradients, slow ones store weights.

Each class documents its recursion; ``transfer/array.py`` runs it.

Sources: Gokmen and Haensch, Front. Neurosci. 14:103 (2020), TTv1; Gokmen, Front. Artif. Intell.
4:699148 (2021), TTv2. The chopped versions are in ``chopped_transfer.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rpukit.analog.cells import PulsedCell, SoftBounds
from rpukit.analog.cells.compound import (
    CompoundCell,
    OneSided,
    Reference,
    Vector,
    with_inherited_parameters,
)
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters

__all__ = ["BufferedTransfer", "Transfer"]

NESTED = (Vector, Reference, OneSided)
Device = PulsedCell | Vector | Reference | OneSided


def one_pulse() -> UpdateParameters:
    """Return parameters of one slot without management: a write is one certain pulse."""
    return UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(CompoundCell):
    """Tiki-Taka version 1: slices of the fast array A are read and written to the slow one, C.

    For every sample (x, d), with the devices 0 (A) to n - 1 (C), lr the learning rate, g the mean
    granularity of the devices:

    1. ``lr_A = fast_lr lr`` (``fast_lr`` alone without `scale_fast_lr`; lr where fast_lr is 0).
    2. Pulses of (x, d) at the rate lr_A, made with g, change device 0.
    3. Where the number of samples so far is a multiple of E_j, device j is transferred to j + 1, j
       ascending: its next slice i (a column) is read, ``z = read(w_j[:, i])``, and device j + 1
       gets the update ``x = onehot_i, d = -z`` at the rate ``transfer_lr lr`` (``transfer_lr``
       alone without `scale_transfer_lr`): on average ``w_{j+1}[:, i] += transfer_lr lr z``.
       With the probability `with_reset_prob` the slice is reset after it has been read.
    4. The visible weight is ``W = sum_k gamma_k w_k``.

    ``E_j = ceil(every_j batch_size)`` with `units_in_mbatch`, else every_j rounded; every_j is
    ``transfer_every (n_line / n_reads_per_transfer)**j`` by default.

    Parameters
    ----------
    devices : tuple of PulsedCell, Vector, Reference or OneSided, two or more
        From the fastest to the slowest. A read of a compound cell reads its visible weight; a
        `OneSided` cell counts each write as a sample towards its refreshes.
    gamma : float, at least 0
        Weight of the faster arrays: ``gamma_k = gamma**(n - 1 - k)``. With 0 only the slowest is
        visible.
    gamma_vec : tuple of float
        The factors gamma_k, if given.
    transfer_every : float, at least 0
        Updates between two transfers of device 0; 0 means never.
    transfer_every_vec : tuple of float
        The same for each device, if given.
    no_self_transfer : bool
        Do not transfer the last device. Otherwise its transfer has no effect.
    units_in_mbatch : bool
        Count `transfer_every` in mini-batches instead of samples.
    n_reads_per_transfer : int, positive
        Number of slices read at one transfer.
    transfer_columns : bool
        Slices are columns, read by the forward product; otherwise rows, read by the backward one.
    with_reset_prob : float, 0 to 1
        Probability that a column is reset after it has been read.
    random_selection : bool
        Draw the first slice of a transfer uniformly, instead of continuing after the last one.
    fast_lr : float, at least 0
    transfer_lr : float
    transfer_lr_vec : tuple of float
        Transfer rate of each device, if given.
    scale_fast_lr, scale_transfer_lr : bool
        Multiply these rates by the learning rate of the update.
    transfer_forward : IOParameters
        Periphery of the reads of slices; noise and bound management are never used.
    transfer_update : UpdateParameters
        Pulses that write slices.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Gokmen and Haensch, "Algorithm for training neural networks on resistive device
    arrays", Front. Neurosci. 14:103 (2020).

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.Transfer(devices=(rk.SoftBounds(), rk.SoftBounds()), transfer_every=2)
    >>> rk.AnalogTile((2, 3), cell, seed=1).devices[0].get_weights().shape
    (2, 3)
    """

    BUFFERED: ClassVar[bool] = False
    CHOPPED: ClassVar[bool] = False

    devices: tuple[Device, ...] = field(default_factory=lambda: (SoftBounds(), SoftBounds()))
    gamma: float = 0.0
    gamma_vec: tuple[float, ...] = ()
    transfer_every: float = 1.0
    transfer_every_vec: tuple[float, ...] = ()
    no_self_transfer: bool = True
    units_in_mbatch: bool = True
    n_reads_per_transfer: int = 1
    transfer_columns: bool = True
    with_reset_prob: float = 0.0
    random_selection: bool = False
    fast_lr: float = 1.0
    transfer_lr: float = 1.0
    transfer_lr_vec: tuple[float, ...] = ()
    scale_fast_lr: bool = True
    scale_transfer_lr: bool = True
    transfer_forward: IOParameters = field(default_factory=IOParameters)
    transfer_update: UpdateParameters = field(default_factory=UpdateParameters)

    def _check(self) -> None:
        self._check_devices("devices", self.devices, 2, 2 if self.CHOPPED else 10**6, NESTED)
        n = len(self.devices)
        for name in ("gamma_vec", "transfer_every_vec", "transfer_lr_vec"):
            values = getattr(self, name)
            good = isinstance(values, tuple) and len(values) in (0, n)
            self._need(
                good and all(math.isfinite(v) for v in values), name, f"() or {n} finite numbers"
            )
        if not self.CHOPPED:
            self._need(self.transfer_every >= 0, "transfer_every", "a number from 0")
        self._need(
            all(v >= 0 for v in self.transfer_every_vec), "transfer_every_vec", "numbers from 0"
        )
        self._need(self.gamma >= 0, "gamma", "a number from 0")
        self._need(self.fast_lr >= 0, "fast_lr", "a number from 0")
        self._need(self.n_reads_per_transfer >= 1, "n_reads_per_transfer", "an integer from 1")
        self._need(0 <= self.with_reset_prob <= 1, "with_reset_prob", "a number in [0, 1]")
        columns = self.transfer_columns or self.with_reset_prob == 0
        self._need(columns, "with_reset_prob", "0, as rows are transferred")
        pulsed = all(isinstance(d, PulsedCell) for d in self.devices) or self.with_reset_prob == 0
        self._need(pulsed, "with_reset_prob", "0, as some devices are compound cells")
        io, update = self.transfer_forward, self.transfer_update
        self._need(isinstance(io, IOParameters), "transfer_forward", "IOParameters")
        self._need(isinstance(update, UpdateParameters), "transfer_update", "UpdateParameters")

    def parts(self) -> tuple[Device, ...]:  # type: ignore[override]
        return self.devices

    def weights_of_parts(self) -> tuple[float, ...]:
        if self.gamma_vec:
            return self.gamma_vec
        n = len(self.devices)
        return tuple(self.gamma ** (n - 1 - k) for k in range(n))

    @property
    def hidden(self) -> bool:
        """Whether only the slowest device contributes to the visible weight."""
        *fast, slow = self.weights_of_parts()
        return slow == 1 and not any(fast)

    def slices(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return the number of slices of a tile, and the number of lines in each.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        n_slice, n_line : int
        """
        return (shape[1], shape[0]) if self.transfer_columns else shape

    def reads(self, shape: tuple[int, int]) -> int:
        """Return the number of slices of one transfer.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        int
        """
        return min(self.n_reads_per_transfer, self.slices(shape)[0])

    def periods(self, shape: tuple[int, int], batch_size: int) -> list[int]:
        """Return the number of samples between two transfers of each device; 0 means never.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)
        batch_size : int

        Returns
        -------
        list of int
        """
        n, n_line = len(self.devices), self.slices(shape)[1]
        growth = n_line / self.reads(shape)
        every = [self.transfer_every * growth**k for k in range(n)]
        every = list(self.transfer_every_vec) or every
        if self.no_self_transfer:
            every[-1] = 0
        if self.units_in_mbatch:
            return [math.ceil(np.float32(e) * np.float32(batch_size)) for e in every]
        return [math.floor(e + 0.5) for e in every]

    def fast_rate(self, lr: float) -> float:
        """Return the rate lr_A of the pulses on the fast array (step 1).

        Parameters
        ----------
        lr : float
            Learning rate of the update.

        Returns
        -------
        float
        """
        if self.fast_lr == 0:
            return lr
        return self.fast_lr * (lr if self.scale_fast_lr else 1.0)

    def transfer_rate(self, k: int, lr: float) -> float:
        """Return the rate of the transfer from device k to the next.

        Parameters
        ----------
        k : int
        lr : float
            Learning rate of the update.

        Returns
        -------
        float
        """
        rate = self.transfer_lr_vec[k] if self.transfer_lr_vec else self.transfer_lr
        rate *= lr if self.scale_transfer_lr else 1.0
        if self.BUFFERED and k + 1 < len(self.devices):
            gamma = self.weights_of_parts()
            if gamma[k] > 0 and gamma[k + 1] > 0:
                rate *= gamma[k] / gamma[k + 1]
        return rate


@with_inherited_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedTransfer(Transfer):
    """Tiki-Taka version 2: reads accumulate in a digital buffer H before they are written.

    The recursion is that of `Transfer`, except for step 3. For a slice i of device j, with
    ``lr_t`` the rate of the transfer (times ``gamma_j / gamma_{j+1}`` where both are positive),
    ``g_t`` the granularity of device j + 1 and L the bit length of `transfer_update`:

    1. ``z = read(w_j[:, i])``; ``H_j[:, i] += |lr_t| z``.
    2. ``n = clip(trunc(H_j[:, i] / (thres_scale g_t)), -L, L)``.
    3. Where n is not 0: ``H_j[:, i] *= momentum`` with `forget_buffer`, else
       ``H_j[:, i] -= (1 - momentum) n thres_scale g_t`` with momentum in [0, 1].
    4. Device j + 1 gets the update ``x = onehot_i, d = -n`` at the rate ``step g_t``: one pulse up
       where n = 1.

    Slices are not reset after a read.

    Parameters
    ----------
    thres_scale : float, positive
        Threshold of the buffer, in granularities of the device that is written.
    step : float, positive
        Rate of a write, in granularities.
    momentum : float
    forget_buffer : bool
        Multiply the buffer by `momentum` where it has been written out.

    Raises
    ------
    ParameterError

    Notes
    -----
    By default `transfer_update` has one slot and no update management.

    Source: Gokmen, "Enabling training of neural networks on noisy hardware", Front. Artif. Intell.
    4:699148 (2021).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.BufferedTransfer().transfer_update.desired_bl
    1
    """

    BUFFERED: ClassVar[bool] = True

    transfer_update: UpdateParameters = field(default_factory=one_pulse)
    thres_scale: float = 1.0
    step: float = 1.0
    momentum: float = 0.1
    forget_buffer: bool = True

    def _check(self) -> None:
        Transfer._check(self)
        for name in ("thres_scale", "step"):
            self._need(getattr(self, name) > 0, name, "a positive number")
        self._need(self.with_reset_prob == 0, "with_reset_prob", "0: buffered reads do not reset")
