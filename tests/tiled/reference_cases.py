"""Recorded answers of other toolkits to problems of the planner's parts."""

from __future__ import annotations

import json
import os
from pathlib import Path


def folder() -> Path:
    """The full set where RPUKIT_ORACLE names it, else the subset that travels with the tests."""
    root = os.environ.get("RPUKIT_ORACLE")
    return Path(root) / "tiled" if root else travelling()


def travelling() -> Path:
    """The subset that travels with the tests."""
    return Path(__file__).parents[1] / "data" / "tiled"


def cases(name: str) -> list[dict]:
    """Read a list of cases that travels with the tests."""
    return json.loads((travelling() / f"{name}.json").read_text(encoding="utf-8"))
