"""Noise models fitted to measurements of devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit._checks import MOST, TINY, Real, Whole, real_array, takes
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.inference.conductance.curves import Curve, Polynomial, Table
from rpukit.inference.noise.phase_change import PowerDrift

__all__ = ["Measured", "fit_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(PowerDrift):
    """Noise model of devices whose programming, drift and read noise were measured.

    Parameters
    ----------
    g_max : float, positive, microsiemens
    t_0, t_read : float, positive, seconds
    prog_noise_scale, read_noise_scale, drift_scale : float, at least 0
    prog_coeff : tuple of float, microsiemens
        Deviation of programming as a polynomial of ``g / g_max``, the constant first, up to six.
    g_nodes : tuple of float, ascending, microsiemens
    nu_mean, nu_std, read_std : tuple of float
        At the nodes: mean and deviation of the drift coefficient, and the relative noise of
        reading over ``sqrt(log((t + t_0 + t_read) / (2 t_read)))``. Between nodes straight lines.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.inference import Measured
    >>> model = Measured(prog_coeff=(0.3,), g_nodes=(0, 25), nu_mean=(0.06, 0.04),
    ...                  nu_std=(0.02, 0.01), read_std=(0.05, 0.01))
    >>> round(float(model.reading(1.0)(0.5)), 3)
    0.03
    """

    prog_coeff: tuple[float, ...] = (0.0,)
    g_nodes: tuple[float, ...] = (0.0, 25.0)
    nu_mean: tuple[float, ...] = (0.0, 0.0)
    nu_std: tuple[float, ...] = (0.0, 0.0)
    read_std: tuple[float, ...] = (0.0, 0.0)

    def _check(self) -> None:
        PowerDrift._check(self)
        for name in ("nu_std", "read_std"):
            self._need(min(getattr(self, name), default=0) >= 0, name, "numbers from 0")
        _ = self.programming, self.drift_mean, self.drift_std, self.reading(0.0)

    def _table(self, values: tuple[float, ...]) -> Table:
        return Table(tuple(g / self.g_max for g in self.g_nodes), values)

    @property
    def programming(self) -> Curve:
        return Polynomial(self.prog_coeff).scaled(self.prog_noise_scale)

    @property
    def drift_mean(self) -> Curve:
        return self._table(self.nu_mean)

    @property
    def drift_std(self) -> Curve:
        return self._table(self.nu_std)

    def reading(self, t: float) -> Curve:
        return self._table(self.read_std)


@takes(g_max=Real(TINY), t_0=Real(TINY), t_read=Real(TINY), degree=Whole(0, 5), n_node=Whole(2))
def fit_model(
    target: Any,
    programmed: Any,
    times: Any,
    traces: Any,
    *,
    g_max: float,
    t_0: float = 20.0,
    t_read: float = 250e-9,
    degree: int = 2,
    n_node: int = 8,
) -> Measured:
    """Fit a noise model to measurements.

    Parameters
    ----------
    target : array, shape (n,), microsiemens
        Target of each device, 0 to `g_max`.
    programmed : array, shape (n,), microsiemens
        Conductance that was read right after programming.
    times : array, shape (n_time,), seconds
        At least three different ones.
    traces : array, shape (n_time, n), microsiemens
        Conductance that was read at each time.
    g_max : float, positive, microsiemens
    t_0, t_read : float, positive, seconds
    degree : int, 0 to 5
        Of the polynomial of the spread of programming.
    n_node : int, at least 2
        Of the tables, at quantiles of the targets above a hundredth of `g_max`.

    Returns
    -------
    Measured

    Raises
    ------
    ParameterError, ShapeError, NonFiniteError

    Notes
    -----
    The spread of programming by maximum likelihood (SciPy, Nelder and Mead). The drift
    coefficient of each device is the slope of ``-log g`` over ``log((t + t_0) / t_0)``, by least
    squares; what the line leaves is the noise of reading, whose share in the spread of the slopes
    is taken out.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.inference import PCMLike, fit_model
    >>> device = PCMLike()
    >>> target = np.linspace(1, 25, 5000, dtype=np.float32)
    >>> done = device.program(target, seed=1)
    >>> times = np.geomspace(1, 1e6, 12)
    >>> traces = [device.read(done, t, seed=1) for t in times]
    >>> model = fit_model(target, done.conductance, times, traces, g_max=25.0)
    >>> bool(abs(model.drift_mean(0.9) - device.drift_mean(0.9)) < 0.003)
    True
    """
    g, written, t, y = _checked(target, programmed, times, traces, g_max)
    coefficients = _spread(g / g_max, written - g, degree)
    keep = (g > 0.01 * g_max) & (y > 0).all(axis=0)
    if keep.sum() < 2 * n_node:
        raise ParameterError(f"only {keep.sum()} devices can be followed, need {2 * n_node}")
    x = np.log((t + t_0) / t_0)
    if np.ptp(x) == 0:
        raise ParameterError(f"t_0: got {t_0:g}, beside which all times are the same")
    nu, left, lever = _lines(x, np.log(y[:, keep]))
    if not (t + t_0 > t_read).all():
        raise ParameterError(f"t_read: got {t_read:g}, need less than t_0 + times")
    gain = np.sqrt(np.log((t + t_0 + t_read) / (2 * t_read)))
    share = np.sqrt((left**2).sum(axis=0) / (len(t) - 2)) / np.sqrt((gain**2).mean())
    table = _table(g[keep], nu, share, lever * np.sqrt((gain**2).mean()), n_node)
    return Measured(
        g_max=float(g_max),
        t_0=float(t_0),
        t_read=float(t_read),
        prog_coeff=coefficients,
        g_nodes=table[0],
        nu_mean=table[1],
        nu_std=table[2],
        read_std=table[3],
    )


def _checked(
    target: Any, programmed: Any, times: Any, traces: Any, g_max: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    given = {"target": target, "programmed": programmed, "times": times, "traces": traces}
    arrays = [real_array(a, name) for name, a in given.items()]
    g, written, t, y = arrays
    if g.ndim != 1 or written.shape != g.shape or t.ndim != 1 or y.shape != (t.size, g.size):
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"measurements: got shapes {shapes}, need (n,), (n,), (m,), (m, n)")
    if not all(np.isfinite(a).all() for a in arrays):
        raise NonFiniteError("measurements hold NaN or infinity")
    if not g.size or g.min() < 0 or g.max() > g_max * (1 + 1e-6):
        raise ParameterError(f"target: got {g.min():.4g} to {g.max():.4g}, need 0 to {g_max}")
    if max(abs(a).max() for a in arrays) > MOST:
        raise ParameterError(f"measurements: got numbers beyond {MOST:g}")
    if t.min() < 0 or np.unique(t).size < 3:
        raise ParameterError("times: need three different ones from 0")
    return g, written, t, y


def _spread(x: np.ndarray, off: np.ndarray, degree: int) -> tuple[float, ...]:
    """Fit the deviation of normal errors as a polynomial of x."""
    from scipy import optimize

    basis = np.vander(x, degree + 1, increasing=True)
    start = np.zeros(degree + 1)
    start[0] = off.std() or 1e-6
    floor = 1e-3 * start[0]

    def unlikely(c: np.ndarray) -> float:
        sigma = np.maximum(basis @ c, floor)
        return float(np.mean(np.log(sigma) + 0.5 * (off / sigma) ** 2))

    found = optimize.minimize(
        unlikely, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-6}
    )
    return tuple(float(c) for c in found.x)


def _lines(x: np.ndarray, log_g: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit a line to each device: drift coefficients, residuals, error of a slope per unit."""
    moved = x - x.mean()
    square = float((moved**2).sum())
    slope = moved @ log_g / square
    left = log_g - log_g.mean(axis=0) - moved[:, None] * slope
    return -slope, left, 1 / np.sqrt(square)


def _table(
    g: np.ndarray, nu: np.ndarray, share: np.ndarray, lever: float, n_node: int
) -> tuple[tuple[float, ...], ...]:
    """Average over neighbours in g: nodes, mean and deviation of nu, read noise."""
    groups = np.array_split(np.argsort(g, kind="stable"), n_node)
    nodes, mean, std, read = [], [], [], []
    for group in groups:
        q = float(np.sqrt(np.mean(share[group] ** 2)))
        nodes.append(float(g[group].mean()))
        mean.append(float(nu[group].mean()))
        std.append(float(np.sqrt(max(nu[group].var(ddof=1) - (q * lever) ** 2, 0.0))))
        read.append(q)
    if len({float(np.float32(node)) for node in nodes}) < n_node:
        raise ParameterError(f"target: too few different values for {n_node} nodes")
    return tuple(nodes), tuple(mean), tuple(std), tuple(read)
