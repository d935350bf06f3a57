"""Numba mirrors of the analog kernels: one file per group, one function per kernel."""
