"""Pulsed updates."""
