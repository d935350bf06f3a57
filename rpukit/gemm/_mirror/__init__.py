"""Mirrors of the products."""
