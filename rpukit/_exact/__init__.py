"""Exact arithmetic that all mirrors use, and the decorator that compiles them."""
