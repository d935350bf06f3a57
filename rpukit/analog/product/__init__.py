"""Forward and backward products of a tile."""
