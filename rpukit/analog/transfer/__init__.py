"""Transfer between the arrays of a tile (TTv1 to TTv4)."""
