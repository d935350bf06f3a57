"""Mirrors of the scaling of flows, by which long chains lose nothing to roundings.

``scaled`` has a line (first row, rows, row of the root) for each vector of sums that all of the
root's flow goes through. Flows are added in float64: row k to part k modulo 32, ascending, then
halves of the parts.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit

f4, f8 = np.float32, np.float64

LANES = 32


@jit
def scale_flows(start, stop, scaled, flows):
    """Scale the flows (n_sample, n_row) of vectors to add up to that of the root."""
    parts = np.empty(LANES, f8)
    for b in range(start, stop):
        for v in range(scaled.shape[0]):
            line = flows[b, scaled[v, 0] : scaled[v, 0] + scaled[v, 1]]
            parts[:] = f8(0.0)
            for k in range(line.size):
                parts[k % LANES] = parts[k % LANES] + f8(line[k])
            half = LANES // 2
            while half:
                for k in range(half):
                    parts[k] = parts[k] + parts[k + half]
                half //= 2
            if parts[0] > f8(0.0):
                factor = f4(f8(flows[b, scaled[v, 2]]) / parts[0])
                for k in range(line.size):
                    line[k] = f4(line[k] * factor)


@jit
def scale_columns(scaled, flows):
    """As `scale_flows`, of flows (n_row, n_sample)."""
    parts = np.empty((LANES, flows.shape[1]), f8)
    for v in range(scaled.shape[0]):
        first, size, root = scaled[v, 0], scaled[v, 1], scaled[v, 2]
        parts[:] = f8(0.0)
        for k in range(size):
            for s in range(flows.shape[1]):
                parts[k % LANES, s] = parts[k % LANES, s] + f8(flows[first + k, s])
        half = LANES // 2
        while half:
            for k in range(half):
                for s in range(flows.shape[1]):
                    parts[k, s] = parts[k, s] + parts[k + half, s]
            half //= 2
        for s in range(flows.shape[1]):
            if parts[0, s] > f8(0.0):
                factor = f4(f8(flows[root, s]) / parts[0, s])
                for k in range(size):
                    flows[first + k, s] = f4(flows[first + k, s] * factor)
