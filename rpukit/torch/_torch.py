"""PyTorch itself; says what to install where it is missing."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    from rpukit.errors import TorchError

    raise TorchError('rpukit.torch needs PyTorch: pip install "rpukit[torch]"') from error

__all__ = ["torch"]
