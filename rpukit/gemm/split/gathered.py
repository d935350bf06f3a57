"""Lines of a weight whose columns are on several devices, gathered where they are multiplied.

Large batches make the chains of a sum (4 bytes a result) larger than the weight itself. Then each
device gets whole lines of the weight for some of the results, a window at a time, and makes these
as one device would make them. A window is copied while the one before it is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.lanes import Lanes, mark
from rpukit.gemm.logprob import BLOCK
from rpukit.gemm.ops import det_gemm
from rpukit.gemm.split.collected import Results, collected
from rpukit.gemm.split.pieces import put_columns

__all__ = ["GatheredWeight", "pays"]

Array = Any
Sent = list[tuple[Array, Any]]  # pieces of lines, and the events behind their copies

_WINDOW = 1 << 27  # bytes of gathered lines at a time


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
        self._width = max(BLOCK, _WINDOW // max(1, depth * weights[0].itemsize) // BLOCK * BLOCK)
        self._lanes = Lanes("lines")
        self._there = [mark(device) for device in self.devices]  # the weights
        self._windows: list[tuple[int, Array]] = [(0, None)] * n
        self._ahead: list[tuple[int, int, Sent]] = [(-1, -1, [])] * n
        self._rows = self.everywhere(rows)

    def everywhere(self, columns: Sequence[Array]) -> list[Array]:
        """Join columns, of which each device has some, on every device."""
        made = [mark(device) for device in self.devices]
        sent = [self._sent(columns, made, device) for device in self.devices]
        joined = [self._joined(*given) for given in zip(sent, self.devices, strict=True)]
        self.finish()
        return joined

    def finish(self) -> None:
        """Let what the devices are given later wait for the copies."""
        self._lanes.finish()

    def collected(self, m: int, out_dtype: Any, home: Device) -> Array:
        """Multiply all rows; results on one device."""
        where = (self.edges, self.devices, m, out_dtype, home)
        out = collected(self.heads(out_dtype), *where)
        self.finish()
        return out

    def heads(self, out_dtype: Any) -> list[Results]:
        """Return a function for each device, which gives results that it makes."""
        return [partial(self._product, k, out_dtype) for k in range(len(self.devices))]

    def _product(self, k: int, out_dtype: Any, rows: slice, columns: slice) -> Array:
        """Multiply rows by some of the lines of device k, on that device."""
        first, lines = self._windows[k]
        if lines is None or not first <= columns.start <= columns.stop <= first + len(lines):
            first, lines = self._windows[k] = columns.start, self._lines(k, columns)
        own = lines[columns.start - first : columns.stop - first]
        return det_gemm(self._rows[k][rows], own, trans_b=True, out_dtype=out_dtype)

    def _lines(self, k: int, columns: slice) -> Array:
        """Gather a window that begins with some lines of device k; begin to copy the next one."""
        n, device = self.edges[k + 1] - self.edges[k], self.devices[k]
        first, stop, sent = self._ahead[k]
        if first != columns.start or stop < columns.stop:
            step = columns.stop - columns.start
            first, stop = columns.start, columns.start + max(step, self._width // step * step)
            stop = min(n, stop)
            sent = self._sent_lines(k, first, stop)
        end = min(n, 2 * stop - first)
        self._ahead[k] = (stop, end, self._sent_lines(k, stop, end)) if stop < n else (-1, -1, [])
        return self._joined(sent, device)

    def _sent_lines(self, k: int, first: int, stop: int) -> Sent:
        span = slice(self.edges[k] + first, self.edges[k] + stop)
        return self._sent([w[span] for w in self._weights], self._there, self.devices[k])

    def _sent(self, pieces: Sequence[Array], made: Sequence[Any], device: Device) -> Sent:
        """Begin to copy pieces, each of its own device, to one."""
        return [
            (piece, None) if home == device else self._lanes.send(piece, device, event)
            for piece, home, event in zip(pieces, self.devices, made, strict=True)
        ]

    def _joined(self, sent: Sent, device: Device) -> Array:
        """Join pieces of lines."""
        shape = (len(sent[0][0]), sum(piece.shape[1] for piece, _ in sent))
        out, first = _device.empty(shape, sent[0][0].dtype, device), 0
        with _device.using(device):
            for piece, copied in sent:
                self._lanes.wait(device, copied)
                put_columns(out, first, piece)
                first += piece.shape[1]
        return out
