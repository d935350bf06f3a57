"""Numba mirrors of the circuit kernels: one file per group, one function per kernel."""
