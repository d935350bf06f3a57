"""Tests of loading, launching, tuning and of the runner on the CPU."""
