"""Recorded data of other toolkits: loaders, and their configurations in the words of rpukit."""

from __future__ import annotations

import os
from pathlib import Path


def folder(topic: str, travelling: str = "") -> Path:
    """Where RPUKIT_ORACLE has the full set, else the subset that travels with the tests."""
    root = os.environ.get("RPUKIT_ORACLE")
    if root:
        return Path(root) / topic
    return Path(__file__).parents[1] / "data" / (travelling or topic)
