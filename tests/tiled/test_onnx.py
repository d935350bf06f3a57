"""Training graphs from files: losses, gradients and weights are the recorded ones."""

import numpy as np
import pytest

from rpukit import tiled
from tests.reference.models import NAMES, folder, load, train

# Rounding of float32; parameters whose gradient all but vanishes (a bias or a scale in front of a
# normalisation) are held to the size that rounding gives the others.
TOLERANCES = {"float32": (3e-6, 1e-5, 1e-6), "float64": (1e-10, 1e-10, 1e-6)}


def close(name, dtype, result, golden):
    """Hold losses, first gradients and final weights to the recorded ones."""
    losses, gradients, weights = result
    loss, slope, weight = TOLERANCES[dtype]
    slope *= 10 if "MobileNetV1" in name and dtype == "float32" else 1
    assert np.abs(losses - golden["loss"]).max() <= loss
    most = max(np.abs(golden[f"grad0/{key}"]).max() for key in gradients)
    for key, value in gradients.items():
        want = golden[f"grad0/{key}"]
        bound = slope * max(np.abs(want).max(), 1e-2 * most)
        assert np.abs(value - want).max() <= bound, key
        assert np.abs(weights[key] - golden[f"final/{key}"]).max() <= weight, key


# Graphs of float64 have the same ops; some models are enough for their sums.
WIDE = [(name, "float64") for name in NAMES if name.split("/")[-1] in ("dscnn_like", "lenet_max")]


@pytest.mark.parametrize(("name", "dtype"), [*((name, "float32") for name in NAMES), *WIDE])
def test_recorded_training(name, dtype):
    reference = load(name)
    training = tiled.training_from_onnx(
        reference.file("train"), reference.file("optimizer"), dtype=dtype
    )
    start = reference.start(training.parameters)
    close(name, dtype, train(training, reference, start), reference.golden)
    # Gradients found anew from the forward part of the same file
    builder = tiled.Builder.from_onnx(reference.file("train"), start, dtype=dtype)
    rate = next(node.attributes["lr"] for node in training.optimiser.nodes)
    own = builder.training(training.loss, tiled.SGD(lr=rate))
    close(name, dtype, train(own, reference, start), reference.golden)


SINGLE = sorted(path.parent.name for path in folder().glob("kernels/*/network.onnx"))


@pytest.mark.parametrize("name", SINGLE)
def test_single_op(name):
    path = folder() / "kernels" / name
    graph = tiled.from_onnx(path / "network.onnx")
    with np.load(path / "inputs.npz") as inputs, np.load(path / "outputs.npz") as outputs:
        result = graph.run({key: inputs[key] for key in inputs.files})
        for key in outputs.files:
            want = outputs[key].reshape(result[key].shape)
            assert np.abs(result[key] - want).max() <= 1e-5 * np.abs(want).max()
