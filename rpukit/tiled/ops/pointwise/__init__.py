"""Fused chains of elementwise ops: their steps, and the op that runs them."""
