"""Transfer cells with choppers (TTv3 and TTv4), whose flipping signs cancel a bias.

Each class documents its recursion; ``transfer/array.py`` runs it.

Source: Rasch, Carta, Fagbohungbe, Gokmen, "Fast and robust analog in-memory deep neural network
training", Nature Communications 15:7133 (2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rpukit.analog.cells import PulsedCell
from rpukit.analog.cells.compound import with_inherited_parameters
from rpukit.analog.cells.transfer import Transfer, one_pulse
from rpukit.analog.parameters.update import UpdateParameters

__all__ = ["ChoppedTransfer", "DynamicTransfer"]


@with_inherited_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class ChoppedTransfer(Transfer):
    """Tiki-Taka version 3 (chopped TTv2): flipping signs cancel the bias of the fast array A.

    C is the slow array. The choppers c_in (of slices) and c_out (of lines) are +1 at first. For
    every sample (x, d), with s = c_out c_in^T:

    1. ``lr_A``: fast_lr (times lr with `scale_fast_lr`), or lr where it is 0.
    2. Pulses of (x, d) at the rate lr_A change A; the direction of each is multiplied by s of its
       cell.
    3. Where the number of samples so far is a multiple of E, slice i = next:
       ``z = read(A[:, i])``;
       ``omega = H[:, i] + c_in[i] c_out z kappa``, ``kappa = lr_t / (buffer_granularity g_A)``.
    4. ``n = clip(trunc(omega), -L, L)`` where ``|omega| >= 1``, else 0. Where it is:
       ``omega *= momentum`` with `forget_buffer`, else ``omega -= (1 - momentum) n``. ``H[:, i] =
       omega``.
    5. C gets the update ``x = onehot_i, d = -n`` at the rate ``step g_C``.
    6. c_in[i] flips with the probability in_chop_prob, or, without `in_chop_random`, in every
       ``max(ceil(1 / in_chop_prob), 2)``-th pass over the slices. After the last slice each c_out
       flips with the probability out_chop_prob.
    7. ``W = gamma s o A + C`` with the current choppers.

    Parameters
    ----------
    devices : tuple of two, as in `Transfer`
        A and C.
    transfer_every : float
        Samples (mini-batches with `units_in_mbatch`) between transfers. A negative number r means
        ``|r| n_states(A) / n_slice``, rounded, at least 1.
    in_chop_prob, out_chop_prob : float, 0 to 1
    in_chop_random : bool
    buffer_granularity : float
        Threshold of the buffer in granularities of A; a value that is not positive counts as 1.
    auto_granularity : float, at least 0
        If positive, ``auto_granularity / (n_slice |transfer_every|)`` multiplies the threshold.
    step : float, positive
    momentum : float
    forget_buffer : bool
    no_buffer : bool
        Clear the buffer before every read.
    correct_gradient_magnitudes : bool
        ``kappa = lr_t / lr_A / (buffer_granularity g_C)``.
    auto_scale : bool
        ``lr_A = fast_lr L g_A / (m_x m_d)`` with running means of the largest ``|x|`` and ``|d|``.
    auto_momentum : float, 0 to 1
        Momentum of the running means of `auto_scale`.

    Raises
    ------
    ParameterError

    Notes
    -----
    By default `transfer_update` has one slot and no update management.

    Source: Rasch et al., "Fast and robust analog in-memory deep neural network training", Nature
    Communications 15:7133 (2024).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.ChoppedTransfer(in_chop_prob=0.05).scale_fast_lr
    False
    """

    BUFFERED: ClassVar[bool] = True
    CHOPPED: ClassVar[bool] = True

    units_in_mbatch: bool = False
    scale_fast_lr: bool = False
    transfer_update: UpdateParameters = field(default_factory=one_pulse)
    in_chop_prob: float = 0.1
    in_chop_random: bool = True
    out_chop_prob: float = 0.0
    buffer_granularity: float = 1.0
    auto_granularity: float = 0.0
    step: float = 1.0
    momentum: float = 0.0
    forget_buffer: bool = True
    no_buffer: bool = False
    correct_gradient_magnitudes: bool = False
    auto_scale: bool = False
    auto_momentum: float = 0.99

    def _check(self) -> None:
        Transfer._check(self)
        for name in ("in_chop_prob", "out_chop_prob", "auto_momentum"):
            self._need(0 <= getattr(self, name) <= 1, name, "a number in [0, 1]")
        self._need(self.step > 0, "step", "a positive number")
        self._need(self.auto_granularity >= 0, "auto_granularity", "a number from 0")
        self._need(self.n_reads_per_transfer == 1, "n_reads_per_transfer", "1")
        self._need(not self.random_selection, "random_selection", "False")
        self._need(self.with_reset_prob == 0, "with_reset_prob", "0")
        most = 2.0**48  # where clocks end
        self._need(abs(self.transfer_every) <= most, "transfer_every", f"a size up to {most:g}")
        states = self.transfer_every >= 0 or isinstance(self.devices[0], PulsedCell)
        self._need(states, "transfer_every", "a number from 0, as device 0 is a compound cell")

    @property
    def chop_period(self) -> int:
        """Passes over the slices between two regular flips of a chopper."""
        if self.in_chop_prob == 0:
            return 2
        return max(math.ceil(np.float32(1) / np.float32(self.in_chop_prob)), 2)

    def periods(self, shape: tuple[int, int], batch_size: int) -> list[int]:
        if self.transfer_every >= 0 or self.transfer_every_vec:
            return [Transfer.periods(self, shape, batch_size)[0], 0]
        n_slice = self.slices(shape)[0]
        device = self.devices[0]
        assert isinstance(device, PulsedCell)  # as was checked
        every = device.n_states / n_slice * abs(self.transfer_every)
        return [max(1, math.floor(every + 0.5)), 0]

    def threshold(self, shape: tuple[int, int]) -> float:
        """Return the threshold of the buffer, in weight units of A times the transfer rate.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)

        Returns
        -------
        float
            ``buffer_granularity g_A``, times ``auto_granularity / (n_slice |transfer_every|)``.
        """
        g = self.buffer_granularity if self.buffer_granularity > 0 else 1.0
        g *= self.devices[0].granularity
        if self.auto_granularity > 0:
            g *= self.auto_granularity / (self.slices(shape)[0] * abs(self.transfer_every))
        return g


@with_inherited_parameters
@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicTransfer(ChoppedTransfer):
    """Tiki-Taka version 4 (AGAD): the reference of A is estimated during training.

    The recursion is that of `ChoppedTransfer`, except for steps 3 to 6. M and Q are means of the
    reads, both 0 at first; N is the chopper period, ``mu = min(tail_weightening / N, 1)``, and t
    the number of passes over the slices so far. For slice i:

    1. If the chopper of slice i flipped at its last read: ``Q[:, i] = M[:, i]``.
    2. ``omega = H[:, i] + c_in[i] c_out (z - Q[:, i]) kappa``.
    3. n and H as in `ChoppedTransfer`; without `forget_buffer`, omega is clipped to
       ``+-buffer_cap L`` where buffer_cap is positive.
    4. ``M[:, i] = (1 - mu) M[:, i] + mu z``.
    5. C is written where ``t > N``; before, only H changes.
    6. c_in[i] flips where ``t mod N = N - 1``; with `in_chop_random` it also flips with the
       probability in_chop_prob.

    Parameters
    ----------
    tail_weightening : float, positive
        Weight of the end of a chopper period in M.
    buffer_cap : float, at least 0
    experimental_correct_accumulation : bool
        Divide kappa by ``min(t mod N + 1, 1 / g_A)``.

    Raises
    ------
    ParameterError

    Notes
    -----
    `no_buffer` must be False and `out_chop_prob` 0.

    Source: Rasch et al., Nature Communications 15:7133 (2024), algorithm 3.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.DynamicTransfer().chop_period
    10
    """

    in_chop_random: bool = False
    tail_weightening: float = 5.0
    buffer_cap: float = 0.0
    experimental_correct_accumulation: bool = False

    def _check(self) -> None:
        ChoppedTransfer._check(self)
        self._need(self.tail_weightening > 0, "tail_weightening", "a positive number")
        self._need(self.buffer_cap >= 0, "buffer_cap", "a number from 0")
        self._need(not self.no_buffer, "no_buffer", "False")
        self._need(self.out_chop_prob == 0, "out_chop_prob", "0")
