"""The chains of a product whose factors arrive in pieces of the sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.gemm import real, tensor
from rpukit.gemm._tiles import real_tiles
from rpukit.gemm.formats import TENSOR, bits, format_of

Array = Any
STEP = 16  # terms that the tensor core adds at once


class Chains:
    """State of a product ``a @ b`` while its sum over k arrives in pieces, in ascending order.

    The bits do not depend on how the sum was cut: they are those of one product. The state may
    move to another device between two pieces. The caller makes the device of the state current.

    Parameters
    ----------
    shape : (int, int)
        (m, n) of the result.
    dtype : dtype
        Of the factors; pieces of 16-bit floats end at multiples of 16 of the sum, but for the
        last one.
    device : Device
    segment : int, optional
        Terms after which a chain is restarted. Default: those of `det_gemm`.

    Attributes
    ----------
    n_done : int
        Terms of the sum that were added.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: Any,
        device: _device.Device,
        segment: int | None = None,
    ) -> None:
        self.shape, self.dtype, self.n_done = shape, np.dtype(dtype), 0
        self._device = device
        self.on_tensor_cores = format_of(dtype) in TENSOR
        self._half = self.dtype == np.float16
        usual = tensor.SEGMENT if self.on_tensor_cores else real_tiles.SEGMENT
        self._segment = segment or usual
        self._partial: Array | None = None  # chains of the open segment
        self._total: Array | None = None  # sum of the segments that have ended

    def add(self, a: Array, b: Array, *, trans_a: bool = False, trans_b: bool = False) -> None:
        """Continue the sum by a piece of the factors; 16-bit floats may be given as bits."""
        start, depth = 0, int(a.shape[0 if trans_a else 1])
        while start < depth and 0 not in self.shape:
            inside = self.n_done % self._segment
            whole = (depth - start) // self._segment
            if inside or (self.on_tensor_cores and self.n_done):  # whose kernels add no segments
                whole = 0
            stop = min(depth, start + (whole or 1) * self._segment - inside)
            left = a[start:stop] if trans_a else a[:, start:stop]
            right = b[:, start:stop] if trans_b else b[start:stop]
            ends = inside + stop - start == self._segment
            if whole:
                self._whole_segments(left, right, trans_a, trans_b)
            elif self.on_tensor_cores:
                self._on_tensor_cores(left, right, trans_a, trans_b, inside > 0, ends)
            else:
                self._by_fma(left, right, trans_a, trans_b, inside > 0, ends)
            self.n_done += stop - start
            start = stop

    def to(self, device: _device.Device) -> Chains:
        """Return the state, copied to another device; the same object if it is there."""
        if device == self._device:
            return self
        moved = Chains(self.shape, self.dtype, device, self._segment)
        moved.n_done = self.n_done
        moved._partial = self._moved(
            self._partial if self.n_done % self._segment else None, device
        )
        moved._total = self._moved(self._total if self.n_done >= self._segment else None, device)
        return moved

    def result(self, out: Array, rest: tuple[Array, Array] | None = None) -> None:
        """Write the product into ``out``, C-contiguous; the state does not change.

        ``rest`` is a last piece of both factors, (k, m) and (k, n), of fewer than 16 terms.
        """
        if self.on_tensor_cores:
            self._rounded(bits(out) if out.dtype != np.float32 else out, rest)
            return
        if self.n_done == 0:
            out.fill(0)
            return
        inside, ended = self.n_done % self._segment, self.n_done >= self._segment
        if inside and ended:
            _device.namespace(out).add(self._total, self._partial, out=out)
        else:
            out[...] = self._partial if inside else self._total

    # ---- both arithmetics -----------------------------------------------------------------------

    def _on_tensor_cores(
        self, a: Array, b: Array, trans_a: bool, trans_b: bool, inside: bool, ends: bool
    ) -> None:
        earlier = self.n_done >= self._segment
        if self._partial is None:
            self._partial = tensor.aligned(self.shape, np.float32, self._device)
        if ends and self._total is None:
            self._total = tensor.aligned(self.shape, np.float32, self._device)
        tensor.multiply(
            *self._factors(a, b, trans_a, trans_b),
            self._total if ends else self._partial,
            partial=self._partial if inside else None,
            total=self._total if ends and earlier else None,
        )

    def _whole_segments(self, a: Array, b: Array, trans_a: bool, trans_b: bool) -> None:
        if self.on_tensor_cores:
            self._total = tensor.aligned(self.shape, np.float32, self._device)
            tensor.multiply(*self._factors(a, b, trans_a, trans_b), self._total)
            return
        if self._total is None:
            self._total = _device.empty(self.shape, self.dtype, self._device)
        add = int(self.n_done > 0)
        real.product(a, b, self._total, trans_a, trans_b, add=add, segment=self._segment)

    def _by_fma(
        self, a: Array, b: Array, trans_a: bool, trans_b: bool, inside: bool, ends: bool
    ) -> None:
        if self._partial is None:
            self._partial = _device.empty(self.shape, self.dtype, self._device)
        real.product(a, b, self._partial, trans_a, trans_b, add=2 if inside else 0)
        if not ends:
            return
        if self.n_done < self._segment:
            self._partial, self._total = None, self._partial
        else:
            self._total += self._partial

    def _rounded(self, words: Array, rest: tuple[Array, Array] | None) -> None:
        """Write the sums of 16-bit factors as float32, or rounded to 16 bits."""
        if self.n_done == 0 and rest is None:
            words.fill(0)
            return
        if rest is None:  # a row of zeros, which adds nothing
            rest = tuple(_device.zeros((1, n), np.uint16, self._device) for n in self.shape)
        direct = tensor.is_aligned(words)
        room = words if direct else tensor.aligned(self.shape, words.dtype, self._device)
        inside, ended = self.n_done % self._segment, self.n_done >= self._segment
        tensor.multiply(
            *self._factors(*rest, True, False),
            room,
            partial=self._partial if inside else None,
            total=self._total if ended else None,
        )
        if not direct:
            words[:] = room[:, : self.shape[1]]

    def _factors(
        self, a: Array, b: Array, trans_a: bool, trans_b: bool
    ) -> tuple[tensor.Factor, tensor.Factor]:
        p = tensor.factor(a, 0 if trans_a else 1)
        q = tensor.factor(b, 1 if trans_b else 0)
        return p._replace(half=self._half), q._replace(half=self._half)

    def _moved(self, sums: Array | None, device: _device.Device) -> Array | None:
        if sums is None:
            return None
        if not self.on_tensor_cores or device.kind == "gpu":
            return _device.to_device(sums, device)
        room = tensor.aligned(self.shape, np.float32, device)
        room[...] = _device.to_numpy(sums)
        return room
