"""Learning of circuits from data that no machine holds."""

from __future__ import annotations

import math
import threading
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits import Circuit, Partials, Rule
from rpukit.circuits.learning.fit import check_options, step_options, take_step
from rpukit.circuits.partials import BLOCK
from rpukit.circuits.state import state_of, structure_of
from rpukit.distributed.sources import Unit, source_of
from rpukit.distributed.workers import Workers, shown
from rpukit.errors import ParameterError

__all__ = ["fit"]

Array = Any


class _Cache(threading.local):
    """The circuit of a worker's thread, made once for each graph."""

    key: tuple[str, str] | None = None
    circuit: Circuit | None = None


_cache = _Cache()


def fit(
    circuit: Circuit,
    data: Any,
    *,
    n_epochs: int = 10,
    batch_size: int | None = None,
    method: str = "em",
    step: float | None = None,
    momentum: float | None = None,
    pseudocount: float = 0.1,
    keep_zeros: bool = False,
    rule: Rule | None = None,
    client: Any = None,
    unit: int = 1024,
    device: str = "cpu",
    progress: bool = False,
) -> dict[str, list[float]]:
    """Learn over epochs from data that no machine has to hold, with any number of workers.

    Parameters
    ----------
    circuit : Circuit
        It learns; it stays in this process, which adds up the counts and takes the steps.
    data : array, path, sequence or callable
        An array of NumPy, Dask or Zarr, (n_sample, n_variables); paths of .npy files, a folder of
        them or a Zarr store, which all workers can read; an iterable of blocks of samples of any
        lengths, or a function that returns one for each epoch. NaN is missing.
    n_epochs : int
    batch_size : int, optional
        Samples of a step, a multiple of 256, in the order of the data. Default: all of them.
    method, step, momentum, pseudocount, keep_zeros, rule : optional
        As of `Circuit.fit`.
    client : distributed.Client, concurrent.futures.Executor, optional
        Who counts. Default: this process.
    unit : int
        Samples of a call, a multiple of 256; smaller units are shared out more evenly and need
        less memory, larger ones cost fewer calls. The bits do not depend on it.
    device : str
        Where workers compute: "cpu" or "gpu".
    progress : bool
        Show a progress bar, if tqdm is installed.

    Returns
    -------
    dict
        "train": mean log-likelihood of each epoch; a sample counts before the step that it leads
        to.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, NonFiniteError, DeviceError
        An error leaves the circuit as after the last step.

    Notes
    -----
    Workers compute `Circuit.partials` of their units, and `Circuit.absorb` adds these up in the
    order of the samples: parameters have the same bits for any number of workers, and for any
    order in which they finish. Without ``batch_size`` they are those of `Circuit.fit`. Units of
    a killed worker of Dask are counted by another one.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (700, 4))
    >>> one, two = (rk.Circuit(rk.circuits.mixture(4, 3, rk.circuits.Bernoulli()), seed=1)
    ...             for _ in range(2))
    >>> blocks = [x[:300], x[300:]]
    >>> trace = rk.distributed.fit(one, blocks, n_epochs=3, unit=256)
    >>> _ = two.fit(x, n_epochs=3)
    >>> np.array_equal(one.log_likelihood(x), two.log_likelihood(x))
    True
    """
    workers, source = Workers(client), source_of(data)
    _check(circuit, n_epochs, batch_size, unit)
    first = check_options(method, step, rule)
    if not source.again and n_epochs > 1:
        raise ParameterError(
            f"data: an iterator is read once, got n_epochs {n_epochs}: give a list of blocks, or "
            "a function that returns an iterator"
        )
    whole = batch_size is None or (source.n is not None and batch_size >= source.n)
    options = step_options(method, momentum, whole, pseudocount, keep_zeros, rule)
    options.pop("rule", None)  # the counts have it
    trace: list[float] = []
    bar = shown(n_epochs, progress, "epoch")
    try:
        for _ in range(n_epochs):
            sums, n = [], 0
            for _, units in groupby(source.units(unit, batch_size), lambda unit: unit.step):
                found = _counted(circuit, workers, units, rule, device)
                take_step(circuit, method, None, first, options)
                sums += [found[k][0] for k in sorted(found)]
                n += sum(found[k][1] for k in found)
            if not n:
                raise ParameterError("data: got no samples")
            trace.append(math.fsum(sums) / n)
            if bar is not None:
                bar.update()
    finally:
        if bar is not None:
            bar.close()
    return {"train": trace}


def _counted(
    circuit: Circuit, workers: Workers, units: Any, rule: Rule | None, device: str
) -> dict[int, tuple[float, int]]:
    """Count the samples of a step; give sums of log-likelihoods and numbers of samples."""
    found: dict[int, tuple[float, int]] = {}
    core = circuit._core
    call: Any
    try:
        if workers.in_process:
            call, share = partial(_count_here, circuit, rule), None
        else:
            call, share = _Call(rule, device), partial(_parameters_of, circuit)
        results = workers.results(call, units, share)
        for unit, made in results:
            values = made
            if isinstance(made, Partials):
                circuit.absorb(made)
                values = made.log_likelihoods
            values = _device.to_numpy(values).astype(np.float64)
            found[unit.first] = (math.fsum(values.ravel().tolist()), unit.n)
    except BaseException:
        core.statistics.clear()
        core.waiting.clear()
        core.call_state.unchanged()
        raise
    return found


def _count_here(circuit: Circuit, rule: Rule | None, unit: Unit) -> Array:
    """Count the samples of a unit in this process; give their log-likelihoods."""
    return circuit.accumulate(_on(unit.read(), circuit.device), rule=rule)


class _Call:
    """What a worker does with a unit."""

    def __init__(self, rule: Rule | None, device: str) -> None:
        self.rule, self.device = rule, device

    def __call__(self, unit: Unit, sent: dict[str, Any], *given: Array) -> Partials:
        circuit = _circuit_of(sent, self.device)
        x = _on(given[0] if given else unit.read(), self.device)
        return circuit.partials(x, first_sample=unit.first, rule=self.rule).to("cpu")


def _on(x: Array, device: str) -> Array:
    """Copy samples to a device."""
    home = _device.parse_device(device)
    return x if home.kind == "cpu" else _device.to_device(x, home)


def _parameters_of(circuit: Circuit) -> dict[str, Any]:
    """State of a circuit without momenta and counts, for workers."""
    state = state_of(circuit._core, compact=True, momenta=False)
    return {"structure": structure_of(circuit._core), "state": state}


def _circuit_of(sent: dict[str, Any], device: str) -> Circuit:
    """Make the circuit of a worker's thread, or give it new parameters."""
    key = (sent["structure"], device)
    if _cache.key != key or _cache.circuit is None:
        _cache.circuit, _cache.key = Circuit.from_state(sent["state"], device), key
        return _cache.circuit
    core, arrays = _cache.circuit._core, sent["state"]["arrays"]
    given = (arrays["theta"], arrays["leaf_parameters"])
    core.parameters.take(tuple(core.parameters.on_device(a) for a in given))
    return _cache.circuit


def _check(circuit: Circuit, n_epochs: Any, batch_size: Any, unit: Any) -> None:
    whole = isinstance(n_epochs, (int, np.integer)) and not isinstance(n_epochs, bool)
    if not whole or n_epochs < 1:
        raise ParameterError(f"n_epochs: got {n_epochs!r}, need an integer from 1")
    for name, value in (("batch_size", batch_size), ("unit", unit)):
        if value is None and name == "batch_size":
            continue
        number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not number or value < 1 or value % BLOCK:
            raise ParameterError(
                f"{name}: got {value!r}, need a multiple of {BLOCK}: counts are added up by "
                f"blocks of {BLOCK} samples"
            )
    if circuit._core.statistics.n_sample or circuit._core.waiting:
        raise ParameterError(
            "circuit: it holds counts of samples already; take a step of learning before"
        )
