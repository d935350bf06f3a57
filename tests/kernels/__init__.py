"""Tests of single kernels: CUDA on the CPU, mirror, formula."""
