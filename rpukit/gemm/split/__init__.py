"""Layers split over devices: their log-probabilities, and weights gathered by lines."""
