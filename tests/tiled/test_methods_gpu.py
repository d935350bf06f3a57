"""Training methods on a GPU: the bits of the CPU executor."""

import pytest

from rpukit import tiled
from rpukit.testing import assert_same_bits
from rpukit.tiled import methods
from tests.tiled.method_nets import mini_batches, sketch

METHODS = {
    "rows": lambda b, loss: methods.train_rows(
        b.training(loss, tiled.Adam(lr=0.01)), {"deep.w": (1, 3), "fc.w": (4, 9)}
    ),
    "int8": lambda b, loss: methods.quantise(b, mini_batches(2), learn_scales=True).training(loss),
    "fp16": lambda b, loss: methods.quantise(
        b, mini_batches(1), weights="fp16", activations="bf16"
    ).training(loss),
    "stored": lambda b, loss: methods.store_narrow(
        methods.quantise(b, mini_batches(1), stored=True, activations="fp16").training(loss),
        others="fp16",
    ),
    "adapters": lambda b, loss: methods.add_lora(b, "fc.w", rank=2).training(loss),
    "last": lambda b, loss: tiled.fuse_updates(methods.train_last(b.training(loss), 2)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_bits_of_the_cpu(name):
    training, batches = METHODS[name](*sketch()), mini_batches(3)
    trainers = [
        tiled.plan(training, levels, buffering="double").trainer(training, device=device)
        for levels, device in ((tiled.siracusa_l2(l1=6_000), "cpu"), (tiled.gpu(60_000), "gpu"))
    ]
    assert_same_bits(*(trainer.fit(batches) for trainer in trainers))
    ends = [trainer.parameters(everything=True) for trainer in trainers]
    for key, value in ends[0].items():
        assert_same_bits(value, ends[1][key])
