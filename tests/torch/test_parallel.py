"""Data-parallel training: two processes have the same tiles, and the bits of one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpukit import errors
from rpukit.testing import assert_same_bits

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

import rpukit as rk  # noqa: E402
from tests.torch import two_processes  # noqa: E402

ROOT = Path(__file__).parents[2]
needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch without torch.distributed"
)


def arrays(state):
    """Arrays of the tiles of a state."""
    for name, value in state.items():
        if name.endswith("_extra_state"):
            yield from ((f"{name}.{key}", a) for key, a in value["arrays"].items())
            yield f"{name}.header", value["header"]


@needs_gloo
def test_two_processes_are_one(tmp_path):
    threads = {"OMP_NUM_THREADS": "1", "RPUKIT_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment = os.environ | threads | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch.two_processes"]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(printed)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for name in first:
        pairs = zip(arrays(first[name][0]), arrays(second[name][0]), strict=True)
        for (key, a), (_, b) in pairs:
            assert a == b if isinstance(a, str) else torch.equal(a, b), f"{name}: {key}"
        for key in first[name][0]:
            if not key.endswith("_extra_state"):
                assert torch.equal(first[name][0][key], second[name][0][key]), f"{name}: {key}"
    for cell in two_processes.CELLS:  # with all weights in tiles, as sums of biases are rounded
        alone = two_processes.model(cell, analog_bias=True)
        y = two_processes.train(alone, alone.parameters(), slice(None))
        found = f"{cell}, True"
        for (key, a), (_, b) in zip(
            arrays(alone.state_dict()), arrays(first[found][0]), strict=True
        ):
            if isinstance(a, str):
                assert a == b, key
            else:
                assert_same_bits(a.numpy(), b.numpy())
        assert_same_bits(y.numpy(), torch.cat([first[found][1], second[found][1]]).numpy())


def test_without_a_group():
    model = two_processes.model("pulses", analog_bias=True)
    with pytest.raises(errors.ParameterError, match="init_process_group"):
        rk.torch.data_parallel(model)
