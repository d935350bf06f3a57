"""Fits over data of any kind, in this process and by executors: the bits of `Circuit.fit`."""

import hashlib
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from rpukit.distributed import fit
from rpukit.errors import DTypeError, ParameterError, ShapeError
from tests.circuits.test_partials import mixed, samples

N = 1400
X = samples(N)


def parameters_of(pc):
    arrays = pc.state()["arrays"]
    return hashlib.sha256(arrays["theta"].tobytes() + arrays["leaf_parameters"].tobytes()).digest()


@cache
def in_memory():
    """Parameters that `Circuit.fit` finds by three epochs of EM."""
    pc = mixed()
    pc.fit(X, n_epochs=3)
    return parameters_of(pc)


class Backwards(Executor):
    """An executor whose calls are made when somebody waits, the last ones first."""

    def __init__(self):
        self.calls = []

    def submit(self, function, *args):
        future = Future()
        self.calls.append((future, function, args))
        if len(self.calls) == 3:
            self.turn()
        return future

    def turn(self):
        while self.calls:
            future, function, args = self.calls.pop()
            future.set_result(function(*args))


def shards(folder):
    edges = (0, 100, 700, 701, N)
    for k in range(4):
        np.save(folder / f"part{k}.npy", X[edges[k] : edges[k + 1]])
    return folder


SOURCES = {
    "array": lambda folder: X,
    "blocks": lambda folder: [X[:300], X[300:310], X[310:]],
    "function": lambda folder: lambda: iter([X[:1000], X[1000:]]),
    "folder": shards,
    "paths": lambda folder: sorted(shards(folder).glob("*.npy")),
    "mapped": lambda folder: np.load(next(shards(folder).glob("part3.npy")), mmap_mode="r"),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("unit", [256, 768])
def test_data_of_any_kind(kind, unit, tmp_path):
    data, pc = SOURCES[kind](tmp_path), mixed()
    if kind == "mapped":
        other = mixed()
        other.fit(np.array(data), n_epochs=3)
        fit(pc, data, n_epochs=3, unit=unit)
        assert parameters_of(pc) == parameters_of(other)
        return
    trace = fit(pc, data, n_epochs=3, unit=unit)["train"]
    assert parameters_of(pc) == in_memory()
    assert len(trace) == 3
    assert trace[0] < trace[2]


@pytest.mark.parametrize("unit", [256, 512])
@pytest.mark.parametrize("make", [lambda: None, lambda: ThreadPoolExecutor(3), Backwards])
def test_any_workers(make, unit):
    client = make()
    pc = mixed()
    traces = fit(pc, X, n_epochs=3, unit=unit, client=client)
    assert parameters_of(pc) == in_memory()
    assert traces == fit(mixed(), X, n_epochs=3, unit=unit)


@pytest.mark.parametrize("method", ["em", "scaled_em", "sgd", "adam"])
def test_mini_batches(method):
    """Steps after samples in the order of the data; the last batch is shorter."""
    expected = mixed()
    for _ in range(2):
        for first in range(0, N, 512):
            x = X[first : first + 512]
            if method == "em":
                expected.em_step(x, step=0.5, pseudocount=0.1)
            elif method == "scaled_em":
                expected.scaled_em_step(x, step=0.5, momentum=0.9, pseudocount=0.1)
            else:
                expected.gradient_step(x, method=method, rate=0.5)
    for unit in (256, 512, 1024):
        pc = mixed()
        with ThreadPoolExecutor(2) as pool:
            fit(pc, X, n_epochs=2, batch_size=512, unit=unit, method=method, step=0.5, client=pool)
        assert parameters_of(pc) == parameters_of(expected)


def test_errors_leave_the_circuit_as_after_the_last_step():
    wrong = X.copy()
    wrong[-1, 0] = 99
    for client in (None, ThreadPoolExecutor(2)):
        pc = mixed()
        with pytest.raises(ParameterError, match="variable 0"):
            fit(pc, wrong, client=client, unit=256)
        assert parameters_of(pc) == parameters_of(mixed())
        fit(pc, X, n_epochs=3, client=client)
        assert parameters_of(pc) == in_memory()


@pytest.mark.parametrize(
    ("data", "options", "kind", "match"),
    [
        (X, {"unit": 100}, ParameterError, "multiple of 256"),
        (X, {"batch_size": 300}, ParameterError, "multiple of 256"),
        (X, {"n_epochs": 0}, ParameterError, "n_epochs"),
        (X, {"method": "newton"}, ParameterError, "newton"),
        (iter([X]), {"n_epochs": 2}, ParameterError, "read once"),
        ([], {}, ParameterError, "no samples"),
        (X[0], {}, ShapeError, "n_sample"),
        (7, {}, DTypeError, "got int"),
        ("nowhere.npy", {}, ParameterError, "no .npy file"),
    ],
)
def test_what_cannot_be_fitted(data, options, kind, match):
    pc = mixed()
    with pytest.raises(kind, match=match):
        fit(pc, data, **{"n_epochs": 1, **options})
    assert parameters_of(pc) == parameters_of(mixed())


def test_held_counts_are_refused():
    pc = mixed()
    pc.accumulate(X[:10])
    with pytest.raises(ParameterError, match="holds counts"):
        fit(pc, X)
