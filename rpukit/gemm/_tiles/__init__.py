"""Tiles of products, models of their times, and the choice among them."""
