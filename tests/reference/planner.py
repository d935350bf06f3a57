"""Recorded answers for the parts of the planner: addresses, cycles, hazards."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "tiled"


def cases(name: str) -> list[dict]:
    """Read a list of cases; all of them travel with the tests."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
