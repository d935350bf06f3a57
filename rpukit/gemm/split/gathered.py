"""Lines of a weight whose columns are on several devices, gathered where they are multiplied.

Large batches make the chains of a sum (4 bytes a result) larger than the weight itself. Then each
device gets whole lines of the weight for some of the results, a window at a time, and makes these
as one device would make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from rpukit import _device
from rpukit.gemm.formats import bits
from rpukit.gemm.logprob import BLOCK
from rpukit.gemm.ops import det_gemm
from rpukit.gemm.pieces import joined, on

__all__ = ["GatheredWeight", "pays"]

Array = Any

_WINDOW = 1 << 28  # bytes of gathered lines at a time


def pays(m: int, weights: Sequence[Array]) -> bool:
    """Whether the lines of the weight are less to copy than the chains of m rows."""
    n, depth = len(weights), sum(int(w.shape[1]) for w in weights)
    many: bool = weights[0].shape[0] >= BLOCK * n > BLOCK
    return many and 4 * m * n * n > depth * weights[0].itemsize * (n - 1)


class GatheredWeight:
    """A weight (n_out, n_in) whose columns are on several devices, each of which makes results.

    Parameters
    ----------
    weights : sequence of array
        Pieces of the columns.
    rows : sequence of array
        Pieces of the columns of the inputs, on the same devices.

    Attributes
    ----------
    edges : list of int
        First result of each device, a multiple of 64, and their number.
    devices : list of Device

    Notes
    -----
    Weights are copied without regard to what their devices do meanwhile: `finish` lets later work
    on them wait.
    """

    def __init__(self, weights: Sequence[Array], rows: Sequence[Array]) -> None:
        self._weights, self.devices = weights, [_device.device_of(w) for w in weights]
        n_out, n = int(weights[0].shape[0]), len(weights)
        n_block = -(-n_out // BLOCK)
        self.edges = [min(n_out, n_block * k // n * BLOCK) for k in range(n)] + [n_out]
        depth = sum(int(w.shape[1]) for w in weights)
        self.rows = [joined(rows, depth, device) for device in self.devices]
        self._width = max(BLOCK, _WINDOW // max(1, depth * weights[0].itemsize) // BLOCK * BLOCK)
        self._windows: list[tuple[int, Array]] = [(0, None)] * n
        self._made = [self._event(device) for device in self.devices]

    def everywhere(self, columns: Sequence[Array]) -> list[Array]:
        """Join columns, of which each device has some, on every device."""
        own = []
        for device, piece in zip(self.devices, columns, strict=True):
            with _device.using(device):
                own.append(_device.namespace(piece).ascontiguousarray(piece))
        self._made = [self._event(device) for device in self.devices]
        made = [self._side_by_side(own, device) for device in self.devices]
        self.finish()
        return made

    def _side_by_side(self, pieces: Sequence[Array], device: _device.Device) -> Array:
        """Join pieces of lines, each of its own device, on one."""
        m, n = len(pieces[0]), sum(piece.shape[1] for piece in pieces)
        out, first = _device.empty((m, n), pieces[0].dtype, device), 0
        with _device.using(device):
            for piece, home, made in zip(pieces, self.devices, self._made, strict=True):
                part = piece if home == device else _copied(piece, device, made)
                words, part = (bits(v) if v.itemsize == 2 else v for v in (out, part))
                words[:, first : first + part.shape[1]] = part
                first += part.shape[1]
        return out

    def _event(self, device: _device.Device) -> Any:
        if device.kind == "cpu":
            return None
        cuda = _device.cupy().cuda
        with _device.using(device):
            return cuda.get_current_stream().record(cuda.Event(disable_timing=True))

    def finish(self) -> None:
        """Let what the devices are given later wait for the copies."""
        events = [self._event(device) for device in self.devices]
        for device in self.devices:
            for other, event in zip(self.devices, events, strict=True):
                if event is not None and other != device:
                    with _device.using(device):
                        _device.cupy().cuda.get_current_stream().wait_event(event)

    def products(self, out_dtype: Any) -> list[Array]:
        """Multiply all rows: results of each device, on it."""
        made = []
        for k, (start, stop) in enumerate(pairwise(self.edges)):
            m, device = len(self.rows[k]), self.devices[k]
            with _device.using(device):
                out = _device.empty((m, stop - start), out_dtype, device)
                for first in range(0, stop - start, self._width):
                    columns = slice(first, min(first + self._width, stop - start))
                    own = self.logits(k, out_dtype, slice(0, m), columns)
                    words, part = (bits(v) if v.itemsize == 2 else v for v in (out, own))
                    words[:, columns] = part
            made.append(out)
        self.finish()
        return made

    def heads(self, real: Any) -> list[Any]:
        """Return a function for each device, which gives slices of the logits that it makes."""
        return [partial(self.logits, k, real) for k in range(len(self.devices))]

    def logits(self, k: int, out_dtype: Any, rows: slice, columns: slice) -> Array:
        """Multiply rows by some of the lines of device k, on that device."""
        first, lines = self._windows[k]
        if lines is None or not first <= columns.start <= columns.stop <= first + len(lines):
            first, n = columns.start, self.edges[k + 1] - self.edges[k]
            stop = min(n, first + max(self._width, columns.stop - first))
            span = slice(self.edges[k] + first, self.edges[k] + stop)
            lines = self._side_by_side([w[span] for w in self._weights], self.devices[k])
            self._windows[k] = first, lines
        own = lines[columns.start - first : columns.stop - first]
        return det_gemm(self.rows[k][rows], own, trans_b=True, out_dtype=out_dtype)


def _copied(source: Array, device: _device.Device, made: Any) -> Array:
    """Copy from another GPU after an event there, without regard to what follows it."""
    if not source.flags.c_contiguous:
        return on(source, device)
    out = _device.empty(source.shape, source.dtype, device)
    stream = _device.cupy().cuda.get_current_stream()
    stream.wait_event(made)
    out.data.copy_from_device_async(source.data, source.nbytes, stream)
    return out
