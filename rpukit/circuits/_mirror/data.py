"""Mirror of the encoding of samples for tables and densities."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit

f4, i4, i8 = np.float32, np.int32, np.int64


@jit
def encode_samples(start, stop, x, unknown, support, traits, codes, numbers, fault):
    """Encode samples: codes (-1 missing), numbers (NaN missing); fault 1 if a value is wrong."""
    masks = unknown.shape[0]
    for b in range(start, stop):
        for v in range(x.shape[1]):
            value, trait = x[b, v], traits[v]
            codes[b, v], numbers[b, v] = i4(-1), f4(np.nan)
            if value != value:
                continue
            if value - value != 0:
                fault[0] = i4(1)
                continue
            if masks and unknown[b if masks > 1 else 0, v]:
                continue
            if trait & 1:
                if value >= 0 and value < support[v] and value == i8(value):
                    codes[b, v] = i4(value)
                else:
                    fault[0] = i4(1)
            if trait & 2:
                number = f4(value)
                # From 2^53 on all values are whole, and need not fit an integer.
                count = value >= 9007199254740992 or (value >= 0 and value == i8(value))
                if number - number != 0 or (trait & 4 and not count):
                    fault[0] = i4(1)
                else:
                    numbers[b, v] = number
