"""Hashes that a GPU recorded, the cases behind them, and the test that computes them anew."""
