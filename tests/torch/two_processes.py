"""One of two processes that train a model together: ``python two_processes.py RANK FOLDER``."""

import sys
from pathlib import Path

import pytest
import torch

import rpukit as rk
from rpukit import errors, inference
from rpukit.torch import nn, optim

CELLS = {
    "pulses": rk.SoftBounds(dw_min=0.01),
    "aware": rk.InferenceCell(
        modifier=inference.WeightModifier(type="add_normal", std_dev=0.05),
        input_range=inference.InputRange(value=1.0, learned=True, n_init=1),
    ),
}
BATCH, N_STEP = 8, 3


def model(cell, *, analog_bias):
    torch.manual_seed(0)
    parts = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 3)]
    settings = nn.AnalogSettings(cell=CELLS[cell], tile_shape=(8, 8), analog_bias=analog_bias)
    return rk.torch.convert(torch.nn.Sequential(*parts), settings, seed=7)


def train(net, parameters, rows):
    """Train on these rows of each mini-batch; give the outputs of the last one."""
    optimiser = optim.AnalogSGD(parameters, lr=0.25)
    for step in range(N_STEP):
        x = torch.randn(BATCH, 1, 5, 5, generator=torch.Generator().manual_seed(step))[rows]
        optimiser.zero_grad()
        y = net(x)
        (y.square().sum() / len(x)).backward()
        optimiser.step()
    return y.detach()


def main(rank, folder):
    file = Path(folder).resolve() / "meeting"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=2
    )
    rows, found = slice(4 * rank, 4 * rank + 4), {}
    for cell in CELLS:
        for analog_bias in (True, False):
            tiles = model(cell, analog_bias=analog_bias)
            net = rk.torch.data_parallel(tiles)
            y = train(net, net.parameters(), rows)
            found[f"{cell}, {analog_bias}"] = (tiles.state_dict(), y)
    plain = torch.nn.parallel.DistributedDataParallel(model("pulses", analog_bias=False))
    uneven = rk.torch.data_parallel(model("pulses", analog_bias=True))
    different = model("pulses", analog_bias=True)
    different[0].set_weights(torch.full((4, 1, 3, 3), 0.1 * rank))
    failures = {
        "rk.torch.data_parallel": lambda: plain(torch.zeros(2, 1, 5, 5)),
        "drop_last": lambda: train(uneven, uneven.parameters(), slice(0, 3 + rank)),
        "differ between processes": lambda: rk.torch.data_parallel(different),
    }
    for match, call in failures.items():
        with pytest.raises(errors.ParameterError, match=match):
            call()
    torch.save(found, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
