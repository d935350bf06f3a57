"""Mirror of the finite check."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit

f4 = np.float32
LARGEST = f4(np.finfo(f4).max)


@jit
def check_finite(start, stop, call, x, status):
    """Store ``call`` in the status, if that is 0 and x[start:stop] is not finite."""
    for i in range(start, stop):
        if not abs(x[i]) <= LARGEST and status[0] == 0:
            status[0] = call
