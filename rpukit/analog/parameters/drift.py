"""Parameters of the drift of weights after they have been written."""

from __future__ import annotations

from dataclasses import dataclass

from rpukit._checks import MOST, Checked

__all__ = ["DriftParameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftParameters(Checked):
    """Power-law drift of a weight with the time since it was written.

    A cell that was last written at time t_w, to the weight w0, holds
    ``w0 f + a (f - 1)`` with ``f = max((t - t_w) / t_0, 1) ** -nu`` and
    ``a = g_offset wg_ratio + w_offset`` (0 where that is below `reset_tol`).

    Parameters
    ----------
    nu : float
        Drift exponent; there is no drift if `nu`, `nu_k` and `w_noise_std` are all 0.
    t_0 : float, positive, seconds
        Time before a written weight starts to drift.
    reset_tol : float, at least 0, weight units
        A weight that changed by more than this since the last drift counts as newly written.
    nu_dtod : float, at least 0, relative
        Spread of the exponent from device to device.
    nu_std : float, at least 0, relative
        Spread of the exponent from call to call.
    wg_ratio : float, not 0, weight units per unit of conductance
    g_offset : float, units of conductance
    w_offset : float, weight units
        The conductance of a weight is ``g = (w - w_offset) / wg_ratio + g_offset``.
    nu_k : float
        Dependence of the exponent on the state: ``nu - nu_k (log g - log_g0)``; cells with a
        conductance that is not positive keep nu.
    log_g0 : float
    w_noise_std : float, at least 0, weight units
        Noise of the weight at each call; it does not add up over calls.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Oh et al., "The impact of resistance drift of phase change memory (PCM) synaptic
    devices on artificial neural network performance", IEEE Electron Device Letters 40:1325 (2019).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> cell = rk.Ideal(drift=rk.DriftParameters(nu=0.5))
    >>> tile = rk.AnalogTile((1, 1), cell).set_weights(np.ones((1, 1), np.float32))
    >>> float(np.asarray(tile.drift(4.0))[0, 0])
    0.5
    """

    nu: float = 0.0
    t_0: float = 1.0
    reset_tol: float = 1e-7
    nu_dtod: float = 0.0
    nu_std: float = 0.0
    wg_ratio: float = 1.0
    g_offset: float = 0.0
    w_offset: float = 0.0
    nu_k: float = 0.0
    log_g0: float = 0.0
    w_noise_std: float = 0.0

    def _check(self) -> None:
        self._need(self.t_0 > 0, "t_0", "a positive number")
        self._need(self.wg_ratio != 0, "wg_ratio", "a number other than 0")
        large = abs(self.g_offset * self.wg_ratio + self.w_offset) > MOST
        self._need(not large, "g_offset", f"g_offset wg_ratio + w_offset of a size up to {MOST:g}")
        for name in ("reset_tol", "nu_dtod", "nu_std", "w_noise_std"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    @property
    def active(self) -> bool:
        """Whether weights drift at all."""
        return self.nu != 0 or self.nu_k != 0 or self.w_noise_std != 0

    @property
    def offset(self) -> float:
        """Minus the weight at conductance 0, the limit of drift."""
        a = self.g_offset * self.wg_ratio + self.w_offset
        return a if abs(a) >= self.reset_tol else 0.0
