"""Recorded data of the reference toolkit on inference."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from tests import reference


def folder() -> Path:
    """Where the files of this topic are."""
    return reference.folder("analog", "inference")


@cache
def sets() -> dict:
    with open(folder() / "e_inference.json") as file:
        return json.load(file)["sets"]


@cache
def arrays(name: str) -> dict:
    with np.load(folder() / "e_inference.npz") as file:
        own = [key for key in file.files if key.split("/")[0] == name]
        return {key.split("/")[1]: file[key] for key in own}
