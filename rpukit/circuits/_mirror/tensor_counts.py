"""Mirror of the counts of tied weights on tensor cores.

See ``docs/semantics/circuits.md``, section 6.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32
from rpukit.circuits._mirror.learning import BLOCK, CHAIN, _settle
from rpukit.circuits._mirror.tensor import PART, add_part, put_word

f4 = np.float32


@jit
def tensor_flow(
    start,
    stop,
    position,
    size,
    first_use,
    use_up,
    use_x,
    theta,
    up,
    child,
    wide,
    chains,
    totals,
):
    """Accumulate the counts of a block of weights: children start to stop - 1.

    As ``sum_flow``, but the uses of a sample are added in parts of 64, by pairs of bfloat16. A
    chain ends after 4096 parts.
    """
    n_child, n_use = stop - start, use_x.size
    own, whole = chains[start * size : stop * size], totals[start * size : stop * size]
    sums = own.reshape(n_child, size)
    step = position % BLOCK * (-(-n_use // PART))
    for b in range(up.shape[0]):
        for first in range(0, n_use, PART):
            if step and step % CHAIN == 0:
                _settle(own, whole)
            step += 1
            n = min(PART, n_use - first)
            below, below_rest = np.zeros((2, n_child, n), np.uint16)
            above, above_rest = np.zeros((2, size, n), np.uint16)
            for k in range(n):
                u = first + k
                if wide[b, first_use + u]:
                    continue
                for c in range(n_child):
                    put_word(child[b, use_x[u] + start + c], k, below[c], below_rest[c])
                for m in range(size):
                    put_word(up[b, use_up[u] + m], k, above[m], above_rest[m])
            add_part(below, below_rest, above.T.copy(), above_rest.T.copy(), True, sums)
            for u in range(first, first + n):
                if not wide[b, first_use + u]:
                    continue
                for c in range(n_child):
                    for m in range(size):
                        if theta[(start + c) * size + m] > f4(0.0):
                            e = f4(up[b, use_up[u] + m] + child[b, use_x[u] + start + c])
                            sums[c, m] = f4(sums[c, m] + exp32(e))
        if (position + b + 1) % BLOCK == 0:
            _settle(own, whole)
            step = 0
    if step and step % CHAIN == 0:
        _settle(own, whole)
