"""Ready-made structures of circuits."""
