"""Tests of probabilistic circuits."""
