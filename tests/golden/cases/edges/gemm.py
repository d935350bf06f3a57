"""Products of whole tiles, and rows of words that end at any word."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise
from tests.golden.cases.case import Case, put
from tests.golden.cases.gemm import gemm


def cut_rows(shapes):
    """Copies of the first columns of a matrix, of an odd number, to aligned rows."""

    def run(device):
        from rpukit.gemm import lines

        found, where = [], _device.parse_device(device)
        for shape, columns in shapes:
            drawn = elementwise.random_fill(rk.Stream.from_seed(31), shape)
            x = put(rk.gemm.to_bfloat16(drawn), device)[:, :columns]
            found.append(lines.aligned(x.shape, np.uint16, where))
            lines.align_rows((x, found[-1]))
        return found

    return run


def cases() -> Iterator[tuple[str, Case]]:
    yield "align_rows", Case("cut", cut_rows((((3, 10), 9), ((3, 3), 1), ((4, 7), 7))))
    for dtype in ("f4", "f8"):
        yield "det_gemm", Case(f"{dtype}-whole", gemm(256, 256, 64, dtype, 33))
