"""Finding, compiling, checking, launching, replaying and tuning kernels."""

from rpukit._kernels.launch import Kernel, Variant, warm_up

__all__ = ["Kernel", "Variant", "warm_up"]
