"""Training steps as CUDA graphs, whose replays make the draws of fresh steps."""

from rpukit.torch.graphs.step import CapturedStep, captured_step

__all__ = ["CapturedStep", "captured_step"]
