"""Conversion between weights and conductances: converters, curves, programming and reading."""
