"""Fits and sweeps by processes of Dask, one of which is killed."""

import os
import random
import threading
import time

import dask.array
import distributed
import pytest

from rpukit.distributed import fit, sweep
from tests.circuits.test_partials import mixed
from tests.distributed.test_fit import N, X, in_memory, parameters_of


@pytest.fixture(scope="module")
def client():
    """Two workers; the processes of killed ones are started again."""
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def kill_one(client):
    """End a worker's process as the kernel does when memory is short."""
    os.kill(next(iter(client.run(os.getpid).values())), 9)


def test_arrays_of_dask(client):
    data = dask.array.from_array(X, chunks=(300, 3))
    for how in ({"client": client, "unit": 256}, {}):
        pc = mixed()
        fit(pc, data, n_epochs=3, **how)
        assert parameters_of(pc) == in_memory()


def test_a_fit_loses_nothing_with_a_worker(client):
    killed = []

    def blocks():
        for k, first in enumerate(range(0, N, 256)):
            if k == 4 and not killed:
                kill_one(client)
                killed.append(True)
            yield X[first : first + 256]

    pc = mixed()
    fit(pc, blocks, n_epochs=3, unit=256, client=client)
    assert killed
    assert parameters_of(pc) == in_memory()


def slow(k, seed):
    time.sleep(0.15)
    return random.Random(seed).random() + k


def test_a_sweep_loses_nothing_with_a_worker(client, tmp_path):
    points = [{"k": k} for k in range(6)]
    here = sweep(slow, points)
    timer = threading.Timer(0.3, kill_one, [client])
    timer.start()
    there = sweep(slow, points, client=client, record=tmp_path / "runs.jsonl")
    timer.join()
    assert [run.result for run in there] == [run.result for run in here]
