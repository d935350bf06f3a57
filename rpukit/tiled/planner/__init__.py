"""Plan a graph: tiles, buffers, addresses and instructions."""
