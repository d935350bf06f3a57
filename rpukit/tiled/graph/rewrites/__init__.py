"""Rewriting of ONNX nodes as ops of this package."""
