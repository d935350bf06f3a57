"""Weight matrices over a grid of tiles."""
