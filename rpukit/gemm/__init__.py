"""Batch-invariant deterministic products."""

from rpukit.gemm.formats import arithmetic, from_bfloat16, to_bfloat16
from rpukit.gemm.gradient import WeightGradient
from rpukit.gemm.logprob import linear_logprob, linear_logprob_backward
from rpukit.gemm.ops import det_gemm, det_gemm_backward
from rpukit.gemm.split.sharded import ShardedLinear

__all__ = [
    "ShardedLinear",
    "WeightGradient",
    "arithmetic",
    "det_gemm",
    "det_gemm_backward",
    "from_bfloat16",
    "linear_logprob",
    "linear_logprob_backward",
    "to_bfloat16",
]
