"""Tiles whose rows lie in shared memory, sums of several blocks, ties, labels that are none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rpukit.tiled import Node, Tensor, make_graph, ops
from rpukit.tiled.runtime.reference import run_tile
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform
from tests.golden.cases.tiled import whole_node
from tests.tiled.op_cases import made
from tests.tiled.op_formulas import fused

FEW, MANY = (2, 2100), (515, 37)  # rows longer than a block loads at a time; several in a block
MOST = (31 * 512 + 1, 32)  # as many in a block as there can be
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
PLAIN = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0)}
SUMS = [(1, 16, 0, 1), *((1, 16 + k, 15 + k, 1 + k) for k in range(1, 7))]
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
    "nll_weights": ("NLLLoss", [(48, 7), "labels", (48,), ()], {}),
    # sums of a block of many short rows, of whole rows, and of more parts than lie in memory
    "sum_short": ("ReduceSum", [(3, 350, 20)], {"axes": (1, 2), "keepdims": 0}),
    "sum_all_short": ("ReduceSum", [(3, 4, 5, 6)], {}),
    "sum_pieces": ("ReduceSum", [(2, 4103, 33)], {"axes": (1, 2)}),
    "inv_std_short": ("ChannelInvStd", [(35, 4, 5, 6), (4,)], {}),
    "inv_std_rows": ("ChannelInvStd", [(8, 3, 5, 33), (3,)], {}),
    "product_short": ("ChannelProduct", [(35, 4, 5, 6), (35, 4, 5, 6), (4,), (4,)], {}),
    "matmul_tiles": ("MatMul", [(2, 128, 16), (2, 16, 64)], {}),
    "max_pool_grad_plain": ("MaxPoolGrad", [(1, 2, 4, 3), (1, 2, 9, 7)], PLAIN),
    "div": ("Div", [(2, 3, 5), ()], {}),
    "fused_power": (
        *("FusedPointwise", [(3, 50)]),
        fused((3, 50), ((0, 1),), (3.0, 0.0, 0.7), (16,), (25, 16, 0, 8, 9)),
    ),
    "fused_all": (
        "FusedPointwise",
        [*([(3, 50)] * 7), (1, 1)],
        fused((3, 50), (*(((0, 1),) * 7), (-1, -1)), (), (22,), *SUMS),
    ),
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


NARROW = {  # zeros, and numbers at the bounds of float16
    "positive_zeros": ("Positive", [(3, 50)], {}),
    "half_bounds": ("Quantize", [(3, 50)], {"to": "float16"}),
}
LEAST = {  # all products are below the smallest number, and negative: sums are -0
    "gemm_least": ("Gemm", [(128, 9), (9, 128)], {}),
    "gemm_least_segments": ("Gemm", [(1, 2 * 16384), (2 * 16384, 1)], {}),
}
MANY_ROWS = 600  # several of each row, in all parts of a block's list


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


def at_bounds(value):
    """Zeros, and what rounds to the largest float16, to infinity, or is none."""
    value = value.copy()
    value[0, :9] = 0, -0.0, 65504, 65519, 65520, -65520, np.inf, -np.inf, np.nan
    return value


def least(value):
    tiny = np.sqrt(np.finfo(value.dtype).tiny) / 2**40
    return np.full_like(value, tiny if len(value) > len(value[0]) else -tiny)


def labelled(label):
    """One label is that number, the others are there."""

    def change(value):
        if value.dtype.kind == "i":
            value = value.copy()
            value[1] = label
        return value

    return change


def scattered(dtype, device):
    rows = np.floor(uniform((MANY_ROWS,), 121) * np.float32(5)).astype(np.int64)
    slopes = uniform((MANY_ROWS, 7), 122).astype(dtype)
    inputs = [Tensor("x", slopes.shape, dtype), Tensor("k", rows.shape, "int64")]
    node = Node("node", "ScatterRows", ("x", "k"), ("y",), {"size": 5})
    graph = make_graph("scattered", [node], inputs, ("y",))
    return whole_node(graph, graph.nodes[0], {"x": slopes, "k": rows}, device)


def in_two(dtype, device):
    """A sum of parts of rows, to which that of further rows is added."""
    graph, values, _ = made(
        "in_two", dtype, ("ReduceSum", [(9, 3, 9, 33)], {"axes": (0, 2, 3)}, 0)
    )
    node, found = graph.nodes[0], None
    space = ops.find(node.op).space(node, graph.tensors)
    free, *summed = space.whole
    for part in ((0, 4), (4, 9)):
        box = (free, part, *summed[1:])
        buffers = [None] * ops.find(node.op).buffers
        for operand in space.operands:
            at = tuple(slice(lo, hi) for lo, hi in space.rectangle(operand, box))
            if operand.mode == "in":
                value = np.ascontiguousarray(values[operand.tensor][at]).reshape(-1)
                buffers[operand.slot] = put(value, device)
            else:
                found = put(np.zeros(3, dtype), device) if found is None else found
                buffers[operand.slot] = found
        run_tile(node, graph.tensors, box, buffers)
    return [found]


def one(name, dtype, case, change):
    def run(device):
        graph, values, _ = made(name, dtype, case)
        values = {key: change(value) for key, value in values.items()}
        return whole_node(graph, graph.nodes[0], values, device)

    return run


def cases() -> Iterator[tuple[str, Case]]:
    sets = ((GIVEN, lambda value: value), (TIES, rounded), (FAR_TIES, far), (OUTSIDE, outside))
    sets += ((LEAST, least),)
    for name in ("softmax", "log_softmax_grad", "layer_norm_grad", "mean"):
        op, shapes, attributes = rows_of(MOST)[name]
        case = (op, shapes, attributes, None)
        kernel = ops.find(made(name, "float32", case)[0].nodes[0].op).kernel
        run = one(name, "float32", case, lambda value: value)
        yield kernel, Case(f"{name}_most-float32", run, small=False)
    for given, change in sets:
        for name, (op, shapes, attributes) in given.items():
            for dtype in ("float32", "float64"):
                case = (op, shapes, attributes, None)
                kernel = ops.find(made(name, dtype, case)[0].nodes[0].op).kernel
                yield kernel, Case(f"{name}-{dtype}", one(name, dtype, case, change))
    for dtype in ("float32", "float64"):
        yield "tiled_reduce", Case(f"in_two-{dtype}", partial(in_two, dtype))
        yield "tiled_scatter_rows", Case(f"many-{dtype}", partial(scattered, dtype))
        for label in (5, -1):
            run = one("nll_outside", dtype, (*OUTSIDE["nll_outside"], None), labelled(label))
            yield "tiled_nll", Case(f"label{label}-{dtype}", run)
    for name, (op, shapes, attributes) in NARROW.items():
        run = one(name, "float32", (op, shapes, attributes, None), at_bounds)
        yield "tiled_quantise", Case(f"{name}-float32", run)
