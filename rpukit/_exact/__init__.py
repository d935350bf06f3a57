"""Exact arithmetic and random numbers that have the same bits on every device."""
