"""Tests of analog tiles."""
