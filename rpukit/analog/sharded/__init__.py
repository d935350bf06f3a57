"""Tiles whose cells are split over several devices."""
