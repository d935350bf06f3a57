"""The CUDA sources, as package data of the wheel."""
