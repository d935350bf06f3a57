"""Tests of tiles for inference."""
