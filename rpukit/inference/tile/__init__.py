"""Inference tiles, alone or mapped over a large matrix."""

from rpukit.inference.tile.tile import InferenceTile

__all__ = ["InferenceTile"]
