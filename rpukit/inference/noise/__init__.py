"""Noise models: programming errors, drift and read noise of memory devices."""

from rpukit.inference.noise.model import NoiseModel, Programmed, Verbatim

__all__ = ["NoiseModel", "Programmed", "Verbatim"]
