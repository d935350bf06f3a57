"""Batch-invariant deterministic products."""

from rpukit.gemm.ops import det_gemm

__all__ = ["det_gemm"]
