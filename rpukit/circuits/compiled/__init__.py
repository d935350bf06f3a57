"""A circuit compiled to layers and tables."""
