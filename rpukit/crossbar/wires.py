"""Crossbars with resistive wires: exact nodal analysis, and the fast approximation beside it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit._checks import Checked, need_memory, number
from rpukit.analog import AnalogTile, BoundManagement, Ideal, IOParameters, NoiseManagement
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

__all__ = [
    "WireComparison",
    "Wires",
    "compare_wires",
    "effective_conductance",
    "effective_weights",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires(Checked):
    """Resistances of the wires of a crossbar.

    Parameters
    ----------
    r_in, r_out : float, at least 0, ohms
        Of a segment between two neighbouring cross-points of an input line, of an output line.
    r_driver : float, at least 0, ohms
        Between the source of an input line and its first cross-point, that with output 0.
    r_sense : float, at least 0, ohms
        Between the first cross-point of an output line, that with input 0, and the amplifier,
        which holds 0 V.

    Raises
    ------
    ParameterError
    """

    r_in: float = 0.0
    r_out: float = 0.0
    r_driver: float = 0.0
    r_sense: float = 0.0

    def _check(self) -> None:
        for name in ("r_in", "r_out", "r_driver", "r_sense"):
            self._need(getattr(self, name) >= 0, name, "a number of ohms from 0")


def effective_conductance(conductance: Any, wires: Wires) -> np.ndarray:
    """Solve a crossbar with resistive wires exactly.

    Parameters
    ----------
    conductance : array, shape (n_out, n_in), siemens, at least 0
        Of the device between input line j and output line i.
    wires : Wires

    Returns
    -------
    array, shape (n_out, n_in), float64, siemens
        Current of output i for 1 V at input j, all other inputs at 0 V. The network is linear, so
        the currents for voltages v, shape (n_batch, n_in), are ``v @ result.T``.

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError, MemoryLimitError

    Notes
    -----
    Kirchhoff's current law at every cross-point of every line, solved by the sparse LU
    factorisation of SciPy. Lines without resistance are one node. On the CPU, in float64: a
    reference, not a part of training. 64 x 64 takes about 0.2 s, 128 x 128 about 2 s.

    Source: nodal analysis; C.-W. Ho, A. Ruehli and P. Brennan, IEEE Trans. Circuits Syst. 22:504
    (1975).

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> g = np.full((2, 3), 1e-3)
    >>> found = rk.crossbar.effective_conductance(g, rk.crossbar.Wires(r_sense=1000.0))
    >>> found.round(6)  # three devices in parallel, and a series resistance of the same size
    array([[0.00025, 0.00025, 0.00025],
           [0.00025, 0.00025, 0.00025]])
    """
    g = np.asarray(conductance, np.float64)
    if g.ndim != 2 or 0 in g.shape:
        raise ShapeError(f"conductance: got shape {g.shape}, need (n_out, n_in)")
    if not np.isfinite(g).all():
        raise NonFiniteError("conductance holds NaN or infinity")
    if (g < 0).any():
        raise ParameterError(f"conductance: got {g.min():g}, need numbers from 0: use pairs")
    if not isinstance(wires, Wires):
        raise ParameterError(f"wires: got {type(wires).__name__}, need Wires")
    need_memory(2000 * g.size, f"nodes of a crossbar of {g.shape}")
    return _Network(g, wires).solve()


class _Network:
    """Nodes and resistors of a crossbar.

    Nodes 0 to n_in - 1 are the sources, node n_in is 0 V; all others are unknown.
    """

    def __init__(self, g: np.ndarray, wires: Wires) -> None:
        self.g, (n_out, n_in) = g, g.shape
        self.n_known = n_in + 1
        self.ends: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        # Nodes of the input lines, (n_out, n_in), and of the output lines.
        first = self.n_known
        if wires.r_in:
            top = self._new(n_out * n_in, first).reshape(n_out, n_in)
            self._join(top[:-1], top[1:], wires.r_in)
            first += top.size
        else:
            top = np.broadcast_to(self._new(n_in, first), g.shape)
            first += n_in
        if wires.r_out:
            bottom = self._new(n_out * n_in, first).reshape(n_out, n_in)
            self._join(bottom[:, :-1], bottom[:, 1:], wires.r_out)
            first += bottom.size
        else:
            bottom = np.broadcast_to(self._new(n_out, first)[:, None], g.shape)
            first += n_out
        # Without a resistance in between, the first node is the source or the amplifier itself.
        alias = np.arange(first)
        zero = np.full(n_out, n_in)
        for nodes, known, r in (
            (top[0], np.arange(n_in), wires.r_driver),
            (bottom[:, 0], zero, wires.r_sense),
        ):
            if r:
                self._join(nodes, known, r)
            else:
                alias[nodes] = known
        self.top, self.bottom = alias[top], alias[bottom]
        self.n = first
        self.alias = alias
        self._resistors(self.top, self.bottom, g)

    @staticmethod
    def _new(n: int, first: int) -> np.ndarray:
        return np.arange(first, first + n)

    def _join(self, a: np.ndarray, b: np.ndarray, r: float) -> None:
        self._resistors(a, b, np.full(a.shape, 1 / r))

    def _resistors(self, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> None:
        self.ends.append((a.ravel(), b.ravel(), g.ravel()))

    def solve(self) -> np.ndarray:
        """Return the current of each output for 1 V at each input."""
        sparse = import_module("scipy.sparse")
        a, b, g = (np.concatenate(part) for part in zip(*self.ends, strict=True))
        a, b = self.alias[a], self.alias[b]
        rows, columns = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
        values = np.concatenate([g, g, -g, -g])
        shape, known = (self.n, self.n), self.n_known
        laplacian = sparse.csc_matrix((values, (rows, columns)), shape=shape)
        # Nodes that are others by another name, or without any conductance, stay out.
        used = np.flatnonzero(laplacian.diagonal()[known:] > 0) + known
        n_in = known - 1
        voltage = np.zeros((self.n, n_in))
        voltage[np.arange(n_in), np.arange(n_in)] = 1
        if used.size:
            inner = laplacian[used][:, used].tocsc()
            right = -laplacian[used][:, :n_in].toarray()
            # The matrix is symmetric and positive definite: no pivots, and an ordering for such.
            how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
            symmetric = {"SymmetricMode": True}
            solver = import_module("scipy.sparse.linalg")
            factor = solver.splu(inner, **how, options=symmetric)
            voltage[used] = factor.solve(right)
        found = np.empty((self.g.shape[0], n_in))
        for i in range(len(found)):  # the currents of the devices of a line end in its amplifier
            drop = voltage[self.top[i]] - voltage[self.bottom[i]]
            found[i] = self.g[i] @ drop
        return found


def effective_weights(weight: Any, wires: Wires, *, g_max: float) -> np.ndarray:
    """Compute what a matrix of weights becomes behind resistive wires.

    Parameters
    ----------
    weight : array, shape (n_out, n_in)
        A weight of 1 is a device of `g_max`; each weight is a pair of devices on two neighbouring
        output lines, of which one is 0.
    wires : Wires
    g_max : float, positive, siemens

    Returns
    -------
    array, shape (n_out, n_in), float64

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError, MemoryLimitError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> w = np.array([[0.5, -1.0]])
    >>> rk.crossbar.effective_weights(w, rk.crossbar.Wires(), g_max=5e-6).round(6)
    array([[ 0.5, -1. ]])
    """
    w, unit = np.asarray(weight, np.float64), number(g_max, "g_max", low=1e-30)
    if w.ndim != 2:
        raise ShapeError(f"weight: got shape {w.shape}, need (n_out, n_in)")
    pairs = np.stack([np.maximum(w, 0), np.maximum(-w, 0)], axis=1).reshape(-1, w.shape[1])
    found = effective_conductance(pairs * unit, wires) / unit
    effective: np.ndarray = found[0::2] - found[1::2]
    return effective


@dataclass(frozen=True, slots=True)
class WireComparison:
    """Outputs of a matrix behind resistive wires, by two methods.

    Attributes
    ----------
    ideal, exact, fast : array, shape (n_batch, n_out), float64
        Without resistance, by nodal analysis, by the ``ir_drop`` of a tile.
    """

    ideal: np.ndarray
    exact: np.ndarray
    fast: np.ndarray

    @property
    def loss(self) -> float:
        """Root mean square of what the wires change, relative to that of the ideal outputs."""
        return _share(self.exact - self.ideal, self.ideal)

    @property
    def fast_loss(self) -> float:
        """The same by the fast method."""
        return _share(self.fast - self.ideal, self.ideal)

    @property
    def error(self) -> float:
        """Root mean square error of the fast method, relative to that of the ideal outputs."""
        return _share(self.fast - self.exact, self.ideal)


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(np.sqrt(np.mean(part**2) / np.mean(whole**2)))


def compare_wires(weight: Any, x: Any, wires: Wires, *, g_max: float) -> WireComparison:
    """Compare the fast ``ir_drop`` of a tile with nodal analysis.

    Parameters
    ----------
    weight : array, shape (n_out, n_in)
    x : array, shape (n_batch, n_in)
        Inputs within -1 to 1.
    wires : Wires
        The fast method knows `r_out` alone.
    g_max : float, positive, siemens
        Of a weight of 1.

    Returns
    -------
    WireComparison

    Raises
    ------
    ShapeError, ParameterError, NonFiniteError, MemoryLimitError

    Notes
    -----
    The tile has ``ir_drop=1`` and ``ir_drop_g_ratio = 1 / (r_out g_max)``, and nothing else is on.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> w, x = np.full((4, 32), 0.5), np.ones((1, 32))
    >>> found = rk.crossbar.compare_wires(w, x, rk.crossbar.Wires(r_out=1.0), g_max=50e-6)
    >>> bool(0.005 < found.loss < 0.01), bool(found.error < 0.05 * found.loss)
    (True, True)
    """
    w, v = np.asarray(weight, np.float32), np.asarray(x, np.float32)
    if v.ndim != 2 or w.ndim != 2 or v.shape[1] != w.shape[1]:
        raise ShapeError(f"x: got shape {v.shape} for weights of {w.shape}, need (n_batch, n_in)")
    effective = effective_weights(w, wires, g_max=g_max)
    ratio = 1 / (wires.r_out * number(g_max, "g_max", low=1e-30)) if wires.r_out else 1.0
    io = IOParameters(
        inp_res=0.0,
        inp_bound=0.0,
        out_res=0.0,
        out_bound=0.0,
        out_noise=0.0,
        noise_management=NoiseManagement.NONE,
        bound_management=BoundManagement.NONE,
        ir_drop=1.0 if wires.r_out else 0.0,
        ir_drop_g_ratio=ratio,
    )
    tile = AnalogTile(w.shape, Ideal(), forward=io).set_weights(w)
    given, whole = v.astype(np.float64), w.astype(np.float64)
    fast = tile.forward(v).astype(np.float64)
    return WireComparison(given @ whole.T, given @ effective.T, fast)
