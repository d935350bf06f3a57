"""Tiles whose rows lie in shared memory, and sums that several blocks make."""

from __future__ import annotations

from collections.abc import Iterator

from rpukit.tiled import ops
from tests.golden.cases.case import Case
from tests.golden.cases.tiled import whole
from tests.tiled.op_cases import made

FEW, MANY = (2, 2100), (515, 37)  # rows longer than a block loads at a time; several in a block


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


GIVEN = {
    **{f"{name}_few": case for name, case in rows_of(FEW).items()},
    **{f"{name}_many": case for name, case in rows_of(MANY).items()},
    "sum_parts": ("ReduceSum", [(5, 3, 9, 33)], {"axes": (0, 2, 3), "keepdims": 0}),
    "gemm_blocks": ("Gemm", [(70, 33), (33, 66), (66,)], {"alpha": -0.5, "beta": 2.0}),
}


def cases() -> Iterator[tuple[str, Case]]:
    for name, (op, shapes, attributes) in GIVEN.items():
        for dtype in ("float32", "float64"):
            case = (op, shapes, attributes, None)
            kernel = ops.find(made(name, dtype, case)[0].nodes[0].op).kernel
            yield kernel, Case(f"{name}-{dtype}", whole(name, dtype, case))
