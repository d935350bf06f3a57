"""Timelines of plans as files, and plans compared over sizes of memory and targets."""
