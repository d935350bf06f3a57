"""Weight arrays of a tile: weights and parameters of its cells."""
