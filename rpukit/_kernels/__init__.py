"""The kernels' machinery: find a source, compile it, check and launch it, pick a variant."""

from rpukit._kernels.launch import Kernel, Variant, warm_up

__all__ = ["Kernel", "Variant", "warm_up"]
