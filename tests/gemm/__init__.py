"""Tests of the deterministic products."""
