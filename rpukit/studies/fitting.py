"""Fit of mean responses and of noise to measured pulses, in weight units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpukit.studies.curves import Curve, FloatArray
from rpukit.studies.prediction import (
    LIMIT,
    Cycles,
    Gains,
    Parameters,
    gains,
    open_loop,
    predict,
    unlikely,
)

__all__ = ["Found", "fit_curve", "left_out_error"]

_ROUNDS = 6  # of noise and means in turn, at most
_SETTLED = 0.05  # standard errors: the rounds end when means change less
_FACTORS = (0.3, 1.0, 3.0, 10.0)  # of the first guess of a step
_MOST_FOLDS = 4
_BLIND = 1e-7  # of the largest column of the Jacobian: a parameter that changes nothing
_NOISES = (5e-4, 50.0)
_WIDTH = 0.05  # of finite differences, in logarithms of noise
_REACH = 0.3  # the same, of the information on the means
_STENCIL = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1)], float)
_UNKNOWN = 3.0  # standard error of the logarithm of a noise about which the data say nothing


@dataclass(frozen=True, slots=True)
class Found:
    """Parameters of a curve with their standard errors; NaN where the data say nothing.

    Attributes
    ----------
    local, local_error : array, shape (n_device, n_local), weight units
    shared, shared_error : array, shape (n_shared,)
    noise, noise_error : array, shape (2,)
        Relative noise of a step, and standard deviation of a read in weight units.
    cost : float
        Negative logarithm of the likelihood.
    """

    local: FloatArray
    local_error: FloatArray
    shared: FloatArray
    shared_error: FloatArray
    noise: FloatArray
    noise_error: FloatArray
    cost: float

    @property
    def parameters(self) -> Parameters:
        """The means, as one set."""
        return Parameters(self.local[None], self.shared[None])


def fit_curve(curve: Curve, cycles: Cycles) -> Found:
    """Fit means and noise in turn, until the means settle.

    Parameters
    ----------
    curve : Curve
    cycles : Cycles

    Returns
    -------
    Found
    """
    problem = _Problem(curve, cycles, int(cycles.device.max()) + 1)
    flat = _level(cycles)
    vector, _ = problem.solve(_start(problem), flat, correct=False)
    noise = np.array([0.5, flat.deviation[0, 0]])
    for k in range(_ROUNDS):
        noise, noise_error = problem.fit_noise(vector, noise, corrected=k > 0)
        known = gains(curve, problem.sets(vector), cycles, noise)
        before = vector
        vector, error = problem.solve(vector, known)
        if k and not (np.abs(vector - before) / error > _SETTLED).any():
            break
    parameters, errors = problem.sets(vector), problem.sets(error)
    return Found(
        parameters.local[0],
        errors.local[0],
        parameters.shared[0],
        errors.shared[0],
        noise,
        noise_error,
        float(unlikely(curve, parameters, cycles, noise[None])[0]),
    )


def left_out_error(curve: Curve, cycles: Cycles, found: Found) -> float | None:
    """Predict each cycle from its first read by a fit to the others.

    Parameters
    ----------
    curve : Curve
    cycles : Cycles
    found : Found
        The fit to all cycles, from which the others begin.

    Returns
    -------
    float or None
        Root mean square error, weight units; None where no device has two cycles.
    """
    order = np.zeros(cycles.device.size, np.int64)
    for d in range(len(found.local)):
        own = cycles.device == d
        order[own] = np.arange(own.sum()) if own.sum() > 1 else -1
    n_fold = min(_MOST_FOLDS, int(order.max()) + 1)
    errors = []
    for fold in range(n_fold if n_fold > 1 else 0):
        out = (order >= 0) & (order % n_fold == fold)
        rest, tried = cycles.select(~out), cycles.select(out)
        known = gains(curve, found.parameters, rest, found.noise)
        problem = _Problem(curve, rest, len(found.local))
        vector, _ = problem.solve(_packed(found.parameters), known, most=5)
        error = open_loop(curve, problem.sets(vector), tried, found.noise) - tried.read
        errors.append(error[1:][~np.isnan(error[1:])])
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) if errors else None


def _packed(parameters: Parameters) -> FloatArray:
    """Write one set of parameters as a vector, for SciPy."""
    return np.concatenate([parameters.local[0].ravel(), parameters.shared[0]])


def _level(cycles: Cycles) -> Gains:
    """Weigh all reads alike, by the differences of neighbouring ones."""
    steps = [np.diff(read[~np.isnan(read)]) for read in cycles.read.T]
    scale = max(1.4826 * float(np.median(np.abs(np.concatenate(steps)))), 1e-4)
    flat = np.full(cycles.read.shape, scale)
    return Gains(np.zeros_like(flat), flat, np.full_like(flat, 1e-3))


class _Problem:
    """Least squares over the errors of predictions, with the parameters as one vector."""

    def __init__(self, curve: Curve, cycles: Cycles, n_device: int) -> None:
        self.curve, self.cycles, self.n_device = curve, cycles, n_device
        self._seen = ~np.isnan(cycles.read)
        self._seen[0] = False
        self._owner = np.broadcast_to(cycles.device, cycles.read.shape)[self._seen]
        n = len(curve.local)
        self.limits = tuple(
            np.concatenate([np.tile(v[:n], n_device), v[n:]]) for v in (curve.low, curve.high)
        )

    def sets(self, vectors: FloatArray) -> Parameters:
        """Cut vectors into local and shared parameters."""
        rows = np.atleast_2d(vectors)
        cut = self.n_device * len(self.curve.local)
        shape = (-1, self.n_device, len(self.curve.local))
        return Parameters(rows[:, :cut].reshape(shape), rows[:, cut:])

    def errors(self, vector: FloatArray, known: Gains, correct: bool = True) -> FloatArray:
        """Errors of the predictions of all reads, in deviations."""
        sets = self.sets(vector)
        return predict(self.curve, sets, self.cycles, known, correct=correct)[0][self._seen]

    def slopes(self, vector: FloatArray, known: Gains, correct: bool = True) -> FloatArray:
        """Jacobian of the errors; a local parameter is varied in all devices at once."""
        n_local, n_shared = len(self.curve.local), len(self.curve.shared)
        step = 1e-6 * np.maximum(np.abs(vector), 1e-3)
        step = np.where(vector + step > self.limits[1], -step, step)
        base, wide = self.sets(vector), self.sets(step)
        local = np.repeat(base.local, 1 + n_local + n_shared, axis=0)
        shared = np.repeat(base.shared, 1 + n_local + n_shared, axis=0)
        for k in range(n_local):
            local[1 + k, :, k] += wide.local[0, :, k]
        for k in range(n_shared):
            shared[1 + n_local + k, k] += wide.shared[0, k]
        found = predict(self.curve, Parameters(local, shared), self.cycles, known, correct=correct)
        change = found[1:, self._seen] - found[0, self._seen]
        out = np.zeros((self._owner.size, vector.size))
        row = np.arange(self._owner.size)
        for k in range(n_local):
            out[row, self._owner * n_local + k] = change[k] / wide.local[0, self._owner, k]
        for k in range(n_shared):
            out[:, self.n_device * n_local + k] = change[n_local + k] / wide.shared[0, k]
        return out

    def solve(
        self, vector: FloatArray, known: Gains, *, correct: bool = True, most: int = 20
    ) -> tuple[FloatArray, FloatArray]:
        """Fit the parameters of the means by robust least squares; standard errors of all."""
        from scipy import optimize

        done = optimize.least_squares(
            self.errors,
            np.clip(vector, *self.limits),
            self.slopes,
            self.limits,
            x_scale="jac",
            loss="huber",
            f_scale=LIMIT,
            max_nfev=most,
            xtol=1e-5,
            ftol=1e-6,
            gtol=1e-6,
            args=(known, correct),
        )
        slope = self.slopes(done.x, known, correct)
        return done.x, _standard_errors(self.errors(done.x, known, correct), slope)

    def fit_noise(
        self, vector: FloatArray, noise: FloatArray, *, corrected: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Fit both kinds of noise by maximum likelihood: Newton steps in their logarithms.

        ``corrected`` adds what the fit of the means takes from the noise (restricted maximum
        likelihood), linearised at the start.
        """
        parameters, bounds = self.sets(vector), np.log(_NOISES)
        first = at = np.log(np.clip(noise, *_NOISES))
        lost = self._information(vector, first) if corrected else np.zeros(2)
        error = np.full(2, np.inf)
        for _ in range(12):
            tried = np.clip(at + _WIDTH * _STENCIL, *bounds)
            c = unlikely(self.curve, parameters, self.cycles, np.exp(tried))
            c = c + (tried - first) @ lost
            slope = np.array([c[1] - c[2], c[3] - c[4]]) / (2 * _WIDTH)
            mixed = (c[5] + c[6] - c[1] - c[2] - c[3] - c[4] + 2 * c[0]) / (2 * _WIDTH**2)
            own = np.array([c[1] + c[2], c[3] + c[4]]) / _WIDTH**2 - 2 * c[0] / _WIDTH**2
            level, turn = np.linalg.eigh(np.array([[own[0], mixed], [mixed, own[1]]]))
            error = np.sqrt(np.diag(turn @ np.diag(1 / np.maximum(level, 1e-6)) @ turn.T))
            step = -turn @ (turn.T @ slope / np.maximum(np.abs(level), 1.0))
            at = np.clip(at + np.clip(step, -1, 1), *bounds)
            if (np.abs(step) < 0.1 * np.minimum(error, 1)).all():
                break
        known = (error < _UNKNOWN) & (at > bounds[0] + 2 * _WIDTH)
        return np.exp(at), np.where(known, np.exp(at) * error, np.inf)

    def _information(self, vector: FloatArray, at: FloatArray) -> FloatArray:
        """Half the change of the logarithm of the determinant of J^T J with both noises."""
        values = []
        for k in range(2):
            for sign in (1, -1):
                moved = at.copy()
                moved[k] += sign * _REACH
                known = gains(self.curve, self.sets(vector), self.cycles, np.exp(moved))
                slope = self.slopes(vector, known)
                level = np.linalg.eigvalsh(slope.T @ slope)
                values.append(0.5 * np.log(np.maximum(level, 1e-9 * level[-1])).sum())
        return np.array([values[0] - values[1], values[2] - values[3]]) / (2 * _REACH)


def _start(problem: _Problem) -> FloatArray:
    """Choose values to begin with: the best of some, for each device."""
    curve, cycles, n_device = problem.curve, problem.cycles, problem.n_device
    ends = np.stack([_ends(cycles.select(cycles.device == d)) for d in range(n_device)])
    local, shared = [], []
    for down in _FACTORS:
        for rise in _FACTORS:
            for more in curve.starts:
                first = curve.first([ends[:, 0], ends[:, 1], ends[:, 2] * down, ends[:, 3] * rise])
                n_more = len(curve.local) - len(first)
                own = [*first, *(np.full(n_device, v) for v in more[:n_more])]
                local.append(np.stack(own, axis=-1))
                shared.append(np.array(more[n_more:]))
    sets = Parameters(np.stack(local), np.stack(shared))
    error = np.minimum(np.abs(predict(curve, sets, cycles, _level(cycles), correct=False)), 100)
    cost = (error**2).sum(axis=1)
    by_device = np.stack(
        [cost[:, cycles.device == d].sum(axis=1) for d in range(n_device)], axis=1
    )
    best = sets.shared[int(by_device.sum(axis=1).argmin())]
    same = (sets.shared == best).all(axis=1)
    chosen = np.where(same[:, None], by_device, np.inf).argmin(axis=0)
    vector = np.concatenate([sets.local[chosen, np.arange(n_device)].ravel(), best])
    low, high = problem.limits
    return np.clip(vector, low + 1e-9, high - 1e-9)


def _ends(cycles: Cycles) -> FloatArray:
    """Guess bounds and steps of one device: its range, and that over the pulses of a cycle."""
    low, high = np.nanquantile(cycles.read, (0.01, 0.99))
    room = 0.1 * (high - low) + 1e-3
    n_cycle, seen = cycles.device.size, ~np.isnan(cycles.read[1:])
    n = [max((way & seen).sum() / n_cycle, 1.0) for way in (~cycles.up, cycles.up)]
    steps = [np.clip((high - low) / k, 1e-6, 2.0) for k in n]
    return np.array([min(low - room, -0.05), max(high + room, 0.05), *steps])


def _standard_errors(error: FloatArray, slope: FloatArray) -> FloatArray:
    """Standard errors of an M-estimate, by its influence function; infinite for blind ones."""
    size = np.sqrt((slope**2).sum(axis=0))
    kept = size > _BLIND * size.max(initial=0)
    out = np.full(size.size, np.inf)
    inside = np.abs(error) < LIMIT
    scale = np.mean(np.clip(error, -LIMIT, LIMIT) ** 2) / max(inside.mean(), 0.1) ** 2
    normal = (slope / np.where(kept, size, 1))[:, kept]
    covariance = np.linalg.pinv(normal.T @ normal, rcond=1e-12, hermitian=True)
    out[kept] = np.sqrt(np.maximum(np.diag(covariance), 0) * scale) / size[kept]
    return out
