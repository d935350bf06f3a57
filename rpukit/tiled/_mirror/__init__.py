"""Mirrors of the kernels of tiles: flat packed operands, the numbers of one tile."""
