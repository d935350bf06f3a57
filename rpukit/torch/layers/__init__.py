"""Layers for PyTorch with their weights in tiles; `rpukit.torch.nn` has their names."""
