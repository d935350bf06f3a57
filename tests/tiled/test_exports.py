"""Files of PyTorch's exporters: losses and gradients beside those of its autograd in float64.

`tools/compare_exports.py --record` writes the files of `exports`.
"""

from pathlib import Path

import numpy as np
import pytest

from rpukit import tiled

pytest.importorskip("onnx")
FOLDER = Path(__file__).parent / "exports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))


def load(name):
    """A training graph, the batch, and what autograd found."""
    with np.load(FOLDER / f"{name}.npz") as file:
        known = dict(file)
    b = tiled.Builder.from_onnx(FOLDER / f"{name}.onnx", known["names"].tolist())
    assert b.outputs == ("loss",)
    training = b.training("loss", tiled.SGD(lr=1.0))
    types = [training.train.tensors[key].dtype for key in ("x", "t")]
    return (
        training,
        [known[key].astype(kind) for key, kind in zip("xt", types, strict=True)],
        known,
    )


def close(training, loss, slopes, known):
    """Hold a loss, and gradients along random directions, to the rounding of float32."""
    rng = np.random.default_rng(0)
    assert abs(loss - known["loss"]) < 1e-6 * abs(known["loss"])
    for key, want in zip(known["names"], known["slopes"], strict=True):
        way = rng.normal(size=slopes[key].shape)
        error = abs(np.vdot(slopes[key].astype(float), way) - want)
        assert error < 1e-6 * known["most"] * np.linalg.norm(way), key


@pytest.mark.parametrize("name", NAMES)
def test_gradients_beside_autograd(name):
    training, batch, known = load(name)
    graph = training.train
    values = {**training.initial, **dict(zip(("x", "t"), batch, strict=True))}
    for key in graph.inputs:
        tensor = graph.tensors[key]
        values.setdefault(key, np.full(tensor.shape, tensor.dtype == "bool", tensor.dtype))
    ends = graph.run(values)
    pairs = zip(training.parameters, training.accumulators, strict=True)
    totals = {n.inputs[0]: n.outputs[0] for n in graph.nodes if n.op == "InPlaceAccumulatorV2"}
    slopes = {key: ends[totals[total]] for key, total in pairs}
    close(training, ends["loss"], slopes, known)


@pytest.mark.parametrize("name", ["sums", "gpt_fused_attention"])
def test_a_plan_of_an_export(name):
    training, batch, known = load(name)
    trainer = tiled.plan(training, tiled.siracusa_l2(l1=8_000), buffering="double").trainer(
        training
    )
    loss, ends = trainer.step(tuple(batch)), trainer.parameters()
    slopes = {key: training.initial[key] - ends[key] for key in training.parameters}
    known["most"] = max(1.0, known["most"])  # differences of weights round to their size
    close(training, loss, slopes, known)
