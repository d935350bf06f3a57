"""Hardware-aware training: weight modifiers, clipping, remapping, input ranges."""
