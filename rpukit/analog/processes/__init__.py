"""Processes that change weights between updates: decay, diffusion, drift, reset."""
