"""Benchmarks of rpukit, for asv."""
