"""Tiles whose rows lie in shared memory, sums of several blocks, ties, labels that are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rpukit.tiled import ops
from tests.golden.cases.case import Case
from tests.golden.cases.tiled import whole_node
from tests.tiled.op_cases import made

FEW, MANY = (2, 2100), (515, 37)  # rows longer than a block loads at a time; several in a block
WHOLE = (6, 64)  # of whole warps


def rows_of(shape):
    """Ops along rows of that shape: name, op, shapes, attributes."""
    one, line = (shape[0], 1), (shape[1],)
    return {
        "softmax": ("Softmax", [shape], {"axis": 1}),
        "log_softmax": ("LogSoftmax", [shape], {}),
        "softmax_grad": ("SoftmaxGrad", [shape, shape], {"axis": 1}),
        "log_softmax_grad": ("LogSoftmaxGrad", [shape, shape], {"axis": 1}),
        "layer_norm": ("LayerNormalization", [shape, line, line], {}),
        "layer_norm_grad": ("LayerNormalizationGrad", [shape, shape, line, one, one], {}),
        "mean": ("ReduceMean", [shape], {"axes": (1,)}),
    }


IMAGE = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 1)}
GIVEN = {
    **{f"{name}_few": case for name, case in rows_of(FEW).items()},
    **{f"{name}_many": case for name, case in rows_of(MANY).items()},
    **{f"{name}_whole": case for name, case in rows_of(WHOLE).items()},
    "sum_parts": ("ReduceSum", [(5, 3, 9, 33)], {"axes": (0, 2, 3), "keepdims": 0}),
    "gemm_blocks": ("Gemm", [(70, 33), (33, 66), (66,)], {"alpha": -0.5, "beta": 2.0}),
    "gemm_scaled": ("Gemm", [(7, 9), (9, 33), (33,)], {"alpha": -0.3, "beta": 0.7}),
    "gemm_tiles": ("Gemm", [(128, 16), (16, 128)], {}),
    "hard_sigmoid_many": ("HardSigmoid", [(40, 51)], {"alpha": 0.21, "beta": 0.47}),
    "nll_long": ("NLLLoss", [(41, 7), "labels", (41,), ()], {}),
}
TIES = {  # numbers that are whole, zeros of both signs among them
    "arg_max_ties": ("ArgMax", [(9, 17)], {"axis": 1}),
    "max_pool_ties": ("MaxPool", [(2, 3, 9, 8)], IMAGE),
    "max_pool_grad_ties": ("MaxPoolGrad", [(2, 3, 5, 4), (2, 3, 9, 8)], IMAGE),
    "gemm_ties": ("Gemm", [(9, 1), (1, 33)], {"alpha": -0.5, "activation": "Relu"}),
    "relu_grad_ties": ("ReluGrad", [(3, 50), (3, 50)], {}),
    "hard_swish_grad_ties": ("HardSwishGrad", [(3, 50), (3, 50)], {}),
    "leaky_relu_grad_ties": ("LeakyReluGrad", [(3, 50), (3, 50)], {"alpha": 0.2}),
    "clip_grad_ties": ("ClipGrad", [(3, 50), (3, 50)], {"min": -1.0, "max": 1.0}),
}
FAR_TIES = {  # the same up to 9
    "clip_low_ties": ("Clip", [(3, 50)], {"min": 0.0, "max": 2.0}),
    "clip_high_ties": ("Clip", [(3, 50)], {"min": -2.0, "max": 0.0}),
    "relu_ties": ("Relu", [(3, 50)], {}),
    "leaky_relu_ties": ("LeakyRelu", [(3, 50)], {"alpha": -0.5}),
    "hard_sigmoid_grad_ties": ("HardSigmoidGrad", [(3, 50), (3, 50)], {"alpha": 0.5}),
    "hard_swish_grad_far_ties": ("HardSwishGrad", [(3, 50), (3, 50)], {}),
}
OUTSIDE = {  # labels and rows that are none
    "nll_outside": ("NLLLoss", [(6, 5), "labels"], {}),
    "cross_entropy_grad_outside": ("CrossEntropyGrad", [(6, 5), "labels"], {}),
    "label_weights_outside": (
        "LabelWeights",
        ["classes", (5,)],
        {"n_class": 5, "ignore_index": 3},
    ),
    "gather_rows_outside": ("GatherRows", [(5, 7), "rows"], {}),
}


def far(value):
    return rounded(value * value.dtype.type(3))


def rounded(value):
    return np.rint(value) if value.dtype.kind == "f" else value


def outside(value):
    """The first numbers behind the last label, and before the first one."""
    if value.dtype.kind == "i":
        value = value.copy()
        value[:2] = 5, -1
    return value


def one(name, dtype, case, change):
    def run(device):
        graph, values, _ = made(name, dtype, case)
        values = {key: change(value) for key, value in values.items()}
        return whole_node(graph, graph.nodes[0], values, device)

    return run


def cases() -> Iterator[tuple[str, Case]]:
    sets = ((GIVEN, lambda value: value), (TIES, rounded), (FAR_TIES, far), (OUTSIDE, outside))
    for given, change in sets:
        for name, (op, shapes, attributes) in given.items():
            for dtype in ("float32", "float64"):
                case = (op, shapes, attributes, None)
                kernel = ops.find(made(name, dtype, case)[0].nodes[0].op).kernel
                yield kernel, Case(f"{name}-{dtype}", one(name, dtype, case, change))
