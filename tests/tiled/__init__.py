"""Tests of tiled training."""
