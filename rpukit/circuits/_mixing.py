"""How a layer of sums is dealt out to a GPU: outputs, segments and samples of a block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rpukit._precision import real

__all__ = ["MANY", "Mixing", "mixing"]

MANY = 32  # samples from which lifts are worth an array of their own
_BLOCKS = 120  # of a launch that keeps a GPU busy
_SEGMENT = 64


@dataclass(frozen=True, slots=True)
class Mixing:
    """Shape of a block of circuit_mix.cuh."""

    outputs: int
    lanes: int
    samples: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return min(self.outputs, 32) * self.lanes

    def shared(self, dtype: np.dtype[Any]) -> int:
        """Bytes of dynamic shared memory."""
        n = self.samples
        stride = _SEGMENT * (n if n < 8 else n + 4) + (4 if n < 4 else n)
        size = self.lanes * max(stride, n * (self.outputs + 1))
        return -(-size * dtype.itemsize // 16) * 16

    def macros(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Macros of the kernel."""
        shape = {"OUTPUTS": self.outputs, "LANES": self.lanes, "SAMPLES": self.samples}
        return {"REAL": real(dtype)} | shape


@cache
def mixing(n_sample: int, n_out: int, n_in: int, dtype: np.dtype[Any]) -> Mixing:
    """Choose a shape for so many samples, outputs and, of the largest group, inputs."""
    single = dtype.itemsize == 4
    samples = min(_power(n_sample), 16 if single else 8)
    if single and n_sample >= 128:
        samples = 32
    outputs = 64 if samples == 32 else 32
    while outputs > 8 and -(-n_out // outputs) * -(-n_sample // samples) < _BLOCKS:
        outputs //= 2
    lanes = min(8 if samples == 32 else 16, max(8, _power(-(-n_in // _SEGMENT))))
    return Mixing(outputs, lanes, samples)


def _power(n: int) -> int:
    """Least power of two from n on."""
    return 1 << (n - 1).bit_length()
