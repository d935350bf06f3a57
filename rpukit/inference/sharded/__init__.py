"""Inference tiles whose cells are split over several devices."""
