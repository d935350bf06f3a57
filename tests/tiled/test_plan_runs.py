"""What a plan computes is, bit for bit, what the graph computes node by node."""

import numpy as np
import pytest
from known_models import load
from plain import Plain

from rpukit import tiled

LEVELS = {
    "l2": tiled.siracusa_l2(l1=16_000),
    "l3": tiled.siracusa_l3(l1=6_000, l2=24_000),
}


@pytest.mark.parametrize(
    ("name", "levels", "buffering"),
    [
        ("dscnn_like", "l3", "auto"),
        ("dscnn_like", "l2", "double"),
        ("lenet_max", "l3", "deeploy"),
        ("lenet_max", "l2", "auto"),
    ],
)
def test_same_bits_as_the_graph(name, levels, buffering):
    known = load(f"models/{name}")
    graph = tiled.training_from_onnx(known.file("train"), known.file("optimizer"))
    plain = Plain(tiled.plan(graph, LEVELS[levels], buffering=buffering), graph)
    data, target = known.batch(0)
    values = {graph.data: data, graph.target: target, graph.reset: np.array([True])}
    values |= known.start(graph.parameters)
    tensors = graph.train.tensors
    values |= {n: np.zeros(tensors[n].shape, tensors[n].dtype) for n in graph.accumulators}
    values = {n: np.asarray(v, tensors[n].dtype) for n, v in values.items()}
    for name_, value in {**graph.train.constants, **values}.items():
        if graph.train.aliases.get(name_, name_) in plain.homes:
            plain.value(name_)[...] = value.reshape(tensors[name_].shape)
    want = graph.train.run(values)
    plain.run(0)
    for key, value in want.items():
        assert plain.value(key).tobytes() == value.tobytes(), key
    aliases = graph.train.aliases
    given = {aliases.get(n, n): v for n, v in want.items()}
    state = {n: given.get(n, values.get(n)) for n in graph.optimiser.inputs}
    updated = graph.optimiser.run(state)
    plain.run(1)
    for key, value in updated.items():
        assert plain.value(key, 1).tobytes() == value.tobytes(), key
