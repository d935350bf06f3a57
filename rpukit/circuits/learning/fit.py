"""Learning over epochs, with early stopping: `Circuit.fit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import flag, integer, one_of
from rpukit._kernels.calls import changes
from rpukit.circuits.compiled.encoder import taken
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.learning.em import check_em, check_number
from rpukit.circuits.parameters import Parameters
from rpukit.circuits.queries.propagation import Rule
from rpukit.elementwise import random_fill
from rpukit.errors import DTypeError, ParameterError, ShapeError

__all__ = ["check_options", "fit", "step_options", "take_step"]

Array = Any

_STEPS = {"em": 1.0, "scaled_em": 0.4, "sgd": 0.1, "adam": 0.01}
_MOST_EPOCHS = 1 << 31
_ORDER = 1 << 40  # child streams of the order of samples count from here


def fit(
    self: CircuitLike,
    x: Any,
    *,
    n_epochs: int = 10,
    batch_size: int | None = None,
    method: str = "em",
    step: float | None = None,
    final_step: float | None = None,
    momentum: float | None = None,
    pseudocount: float = 0.1,
    keep_zeros: bool = False,
    rule: Rule | None = None,
    missing: Any = None,
    x_valid: Any = None,
    patience: int | None = None,
    progress: bool = False,
) -> dict[str, list[float]]:
    """Learn over epochs, from all samples at each step or from mini-batches in random order.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
    n_epochs : int
    batch_size : int, optional
        Samples of a step; default all of them.
    method : str
        "em" (`em_step`), "scaled_em" (`scaled_em_step`), "sgd" or "adam" (`gradient_step`).
    step : float, optional
        How far a step goes: step of EM, default 1 or 0.4 (scaled), rate of gradients, default
        0.1 (sgd) or 0.01. Mini-batches of EM want small ones.
    final_step : float, optional
        The step falls to this one, linearly over all steps. Default: it stays.
    momentum : float, optional
        Of scaled EM and gradients; default 0.9, and 0 for scaled EM of all the data.
    pseudocount : float
    keep_zeros : bool
    rule : Rule, optional
        These three of EM; see `em_step`.
    missing : array of bool, shape of x, optional
    x_valid : array, shape (n, n_variables), optional
        Data for early stopping. In the end the best parameters are taken: those with the fewest
        impossible samples here, and of these the largest mean log-likelihood of the others.
    patience : int, optional
        Stop after so many epochs that were no better on x_valid.
    progress : bool
        Show a progress bar (needs tqdm).

    Returns
    -------
    dict
        "train" and, with x_valid, "valid": mean log-likelihood of each epoch; a sample of
        "train" counts before the step that it leads to.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError

    Notes
    -----
    The order of samples is drawn from the circuit's seed: the same call on the same circuit
    gives the same bits.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (200, 4))
    >>> pc = rk.Circuit(rk.circuits.mixture(4, 3, rk.circuits.Bernoulli()), seed=1)
    >>> trace = pc.fit(x, n_epochs=5)["train"]
    >>> trace[-1] > trace[0]
    True
    """
    core = self._core
    data, mask = _given(core, x, missing)
    one_of(method, "method", tuple(_STEPS))
    size = len(data) if batch_size is None else batch_size
    n_epochs, size = _check(n_epochs, size, method, rule, patience, x_valid)
    progress = flag(progress, "progress")
    first = check_options(method, step, rule)
    last = first if final_step is None else _checked_step("final_step", final_step, method)
    _, pseudocount, keep_zeros = check_em(1.0, pseudocount, keep_zeros)
    if x_valid is not None:
        core.encoder.parts(x_valid, None, 1)  # raises before anything is changed
    whole = size >= len(data)
    options = step_options(method, momentum, whole, pseudocount, keep_zeros, rule)
    n_step = -(-len(data) // size)
    trace: dict[str, list[float]] = {"train": []}
    if x_valid is not None:
        trace["valid"] = []
    best, xp = _Best(core.parameters.copied()), _device.namespace_of(core.device)
    for epoch in _shown(n_epochs, progress):
        order = _order(core, epoch, len(data)) if size < len(data) else np.arange(len(data))
        sums = []  # read at the end, so that no batch waits for a GPU
        for k in range(n_step):
            part = core.parameters.on_device(order[k * size : (k + 1) * size])
            done = (epoch * n_step + k) / max(1, n_epochs * n_step - 1)
            options["missing"] = None if mask is None else mask[part]
            found = take_step(self, method, data[part], first + (last - first) * done, options)
            sums.append(xp.sum(found, dtype=np.float64))
        total = 0.0
        for batch in sums:
            total += float(batch)
        trace["train"].append(total / len(data))
        if x_valid is None:
            continue
        valid = self.log_likelihood(x_valid)
        trace["valid"].append(float(xp.mean(valid, dtype=np.float64)))
        best.consider(_score(valid), core.parameters)
        if patience is not None and best.since >= patience:
            break
    if x_valid is not None:
        _take(self, best.parameters)
    return trace


@changes
def _take(self: CircuitLike, parameters: tuple[Array, Array]) -> None:
    self._core.call_state.changing("fit")
    self._core.parameters.take(parameters)


@dataclass(slots=True)
class _Best:
    """The parameters with the best score on validation data."""

    parameters: tuple[Array, Array]
    score: tuple[int, float] | None = None
    since: int = 0  # epochs that were no better

    def consider(self, score: tuple[int, float], parameters: Parameters) -> None:
        """Keep the parameters of an epoch if its score is better."""
        if self.score is None or score > self.score:
            self.parameters, self.score, self.since = parameters.copied(), score, 0
        else:
            self.since += 1


def _score(valid: Array) -> tuple[int, float]:
    """Score of log-likelihoods: fewer impossible samples first, then the mean of the others."""
    possible = valid > -np.inf
    n = int(possible.sum())
    mean = float(valid[possible].mean(dtype=np.float64)) if n else -np.inf
    return n - valid.size, mean


def _given(core: Core, x: Any, missing: Any) -> tuple[Array, Array | None]:
    """Samples and mask on the circuit's device; the encoder checks each batch."""
    data = taken(x, core.device, "x")
    if data.ndim == 0 or data.dtype.kind not in "iubf":
        raise DTypeError(f"x: got {x!r}, need an array of samples (n_sample, n_variables)")
    if missing is None:
        return data, None
    mask = taken(missing, core.device, "missing")
    if mask.shape not in (data.shape, data.shape[1:]):
        raise ShapeError(f"missing: got shape {mask.shape}, need {data.shape} or {data.shape[1:]}")
    return data, _device.namespace_of(core.device).broadcast_to(mask, data.shape)


def _check(
    n_epochs: Any, size: Any, method: str, rule: Rule | None, patience: Any, x_valid: Any
) -> tuple[int, int]:
    n_epochs = integer(n_epochs, "n_epochs", low=1, high=_MOST_EPOCHS)
    size = integer(size, "batch_size", low=1, what="samples of a batch")
    if patience is not None:
        integer(patience, "patience", low=0, what="epochs without improvement")
        if x_valid is None:
            raise ParameterError(f"patience: got {patience} without x_valid; give both or neither")
    if rule is not None and method not in ("em", "scaled_em"):
        raise ParameterError(f'rule: method {method!r} takes none; "em" and "scaled_em" do')
    return n_epochs, size


def check_options(method: Any, step: float | None, rule: Rule | None) -> float:
    """Check the method of learning and its rule; give the step, or that of the method."""
    if method not in _STEPS:
        raise ParameterError(f"method: got {method!r}, need one of {', '.join(_STEPS)}")
    if rule is not None and method not in ("em", "scaled_em"):
        raise ParameterError(f'rule: method {method!r} takes none; "em" and "scaled_em" do')
    return _checked_step("step", _STEPS[method] if step is None else step, method)


def _checked_step(name: str, value: Any, method: str) -> float:
    most, interval = (1.0, "(0, 1]") if "em" in method else (np.inf, "(0, inf)")
    return check_number(name, value, interval, lambda v: 0 < v <= most)


def step_options(
    method: str,
    momentum: float | None,
    whole: bool,
    pseudocount: float,
    keep_zeros: bool,
    rule: Rule | None,
) -> dict[str, Any]:
    """Collect the options of the steps of a method; ``whole``: a step sees all the data."""
    if momentum is None:
        momentum = 0.0 if method == "scaled_em" and whole else 0.9
    momentum = check_number("momentum", momentum, "[0, 1)", lambda v: 0 <= v < 1)
    options: dict[str, Any] = {} if method == "em" else {"momentum": momentum}
    if method in ("em", "scaled_em"):
        options |= {"pseudocount": pseudocount, "keep_zeros": keep_zeros, "rule": rule}
    return options


def take_step(
    circuit: CircuitLike, method: str, x: Any, step: float, options: dict[str, Any]
) -> Any:
    """Take a step of a method; without x by the counts that are held."""
    if method == "em":
        return circuit.em_step(x, step=step, **options)
    if method == "scaled_em":
        return circuit.scaled_em_step(x, step=step, **options)
    return circuit.gradient_step(x, method=method, rate=step, **options)


def _order(core: Core, epoch: int, n: int) -> Array:
    draws = random_fill(core.stream.child(_ORDER + epoch), (n,), "bits")
    return np.argsort(draws, kind="stable")


def _shown(n: int, progress: bool) -> Iterator[int]:
    if not progress:
        return iter(range(n))
    return iter(import_module("tqdm.auto").tqdm(range(n), unit="epoch"))
