"""Graphs of one node, with values for their inputs."""

import numpy as np

from rpukit.tiled import Node, Tensor, make_graph
from tests.tiled.op_formulas import CASES

NARROW = ("Quantize", "Positive", "Dequantize", "QuantizeGrad")  # of float32 alone
N_OUTPUTS = {"LayerNormalization": 3, "MomentumSGD": 2, "Adam": 3}


def made(name, dtype="float32", case=None):
    """A graph of one node, and values for its inputs; of `CASES`, or of a case given."""
    op, shapes, attributes, formula = case or CASES[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    inputs, values = [], {}
    for place, shape in enumerate(shapes):
        if isinstance(shape, tuple) and shape and isinstance(shape[0], str):
            inputs.append(Tensor(f"x{place}", shape[1], shape[0]))
            draws = rng.integers(-127, 128, shape[1])
            values[f"x{place}"] = (draws / (64 if shape[0] == "float16" else 1)).astype(shape[0])
            continue
        kind = {"labels": "int64", "classes": "int64", "rows": "int64", "reset": "bool"}.get(
            shape, dtype
        )
        shape = {"labels": shapes[0][:1], "classes": (40,), "rows": (12,), "reset": (1,)}.get(
            shape, shape
        )
        inputs.append(Tensor(f"x{place}", shape, kind))
        if kind == "int64":
            n_class = 5 if "classes" in shapes or "rows" in shapes else shapes[0][1]
            values[f"x{place}"] = rng.integers(0, n_class, shape)
        elif kind == "bool":
            values[f"x{place}"] = np.array([False])
        else:
            draws = rng.normal(size=shape)
            positive = op.startswith("Adam") and place in (3, 4)
            positive = (
                positive or op in ("AdamPowers", "Sqrt", "Log") or (op == "Quantize" and place)
            )
            positive = positive or attributes.get("exponent", 1) % 1 != 0
            values[f"x{place}"] = (np.abs(draws) % 1 if positive else draws).astype(dtype)
    count = len(attributes.get("results", ())) or N_OUTPUTS.get(op, 1)
    outputs = tuple(f"y{k}" for k in range(count))
    node = Node("node", op, tuple(values), outputs, attributes)
    return make_graph(name, [node], inputs, outputs), values, formula
