"""Products of tiles by replay of earlier launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._kernels.launch import Launched
from rpukit._kernels.replay import Replay
from rpukit.random import Stream

Array = Any

_MOST_KEPT = 1 << 22  # elements passed between kernels that are kept from call to call


class ProductReplay:
    """Replay of a product with other inputs.

    The array passed between the kernels is kept if it is small. Then the array of the next result
    is allocated after the launches, while the GPU works.

    Parameters
    ----------
    launches : sequence of Launched
    fixed : tuple
        Weight, status and stream of the product.
    x, y : array
        Inputs and results of the recorded launches.
    size, head : int
        Elements passed between the kernels, and those of them before the converted inputs.
    aligned : bool
        Whether inputs are read 16 bytes at a time.
    """

    def __init__(
        self,
        launches: Sequence[Launched],
        fixed: tuple[Array, Array, Stream],
        x: Array,
        y: Array,
        size: int,
        head: int,
        aligned: bool,
    ) -> None:
        # y is c of det_gemm, and the sums of its outputs
        changing = ("x", "y", "c", "sums", "call", "first_sample")
        self._size = size if size > _MOST_KEPT else 0
        names = (*changing, "work", "a") if self._size else changing
        self._replay = Replay.by_name(launches, names)
        self._head = 4 * head
        self._fixed = fixed
        self._like, self._shape = (type(x), x.dtype), y.shape
        self._aligned = aligned
        self._spare: list[Array] = []  # arrays of later results
        self.n_batch = self._shape[0]

    def valid(self, weight: Array, x: Array, status: Array, stream: Stream) -> bool:
        """Whether a product of inputs of the same shape can be replayed."""
        like = self._like
        return (
            type(x) is like[0]
            and x.dtype is like[1]
            and x._c_contiguous
            and self.fits(weight, x.data.ptr, status, stream)
        )

    def fits(self, weight: Array, address: int, status: Array, stream: Stream) -> bool:
        """Whether a product of contiguous float32 inputs at an address can be replayed."""
        fixed = self._fixed
        return (
            weight is fixed[0]
            and status is fixed[1]
            and stream is fixed[2]
            and not (self._aligned and address % 16)
            and self._replay.valid()
        )

    def at(self, address: int, to: int, first_sample: int, call: int) -> None:
        """Repeat the product with inputs at one address and results at another."""
        if self._size:
            work = self._like[0]((self._size,), np.float32)
            of = work.data.ptr
            self._replay(address, to, to, to, call, first_sample, of, of + self._head)
        else:
            self._replay(address, to, to, to, call, first_sample)

    def __call__(self, x: Array, first_sample: int, call: int) -> Array:
        kind = self._like[0]
        if self._size:
            y = kind(self._shape, np.float32)
            self.at(x.data.ptr, y.data.ptr, first_sample, call)
            return y
        try:
            y = self._spare.pop()
        except IndexError:
            y = kind(self._shape, np.float32)
        self.at(x.data.ptr, y.data.ptr, first_sample, call)
        self._spare.append(kind(self._shape, np.float32))
        return y
