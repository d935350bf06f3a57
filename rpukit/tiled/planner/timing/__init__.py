"""Cycles of ops and plans before and without instructions."""
