"""Recorded data of the reference toolkit, and its configurations in the words of rpukit."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np

import rpukit as rk
from tests import reference

CELLS = {
    "ConstantStepDevice": rk.ConstantStep,
    "LinearStepDevice": rk.LinearStep,
    "SoftBoundsDevice": rk.SoftBounds,
    "SoftBoundsPmaxDevice": rk.SoftBoundsPmax,
    "SoftBoundsReferenceDevice": rk.SoftBoundsReference,
    "ExpStepDevice": rk.ExpStep,
    "PowStepDevice": rk.PowStep,
    "PowStepReferenceDevice": rk.PowStepReference,
    "PiecewiseStepDevice": rk.PiecewiseStep,
    "IdealizedPresetDevice": rk.ConstantStep,
    "GokmenVlasovPresetDevice": rk.ConstantStep,
    "CapacitorPresetDevice": rk.LinearStep,
    "EcRamPresetDevice": rk.LinearStep,
    "EcRamMOPresetDevice": rk.LinearStep,
    "ReRamSBPresetDevice": rk.SoftBoundsReference,
    "ReRamArrayOMPresetDevice": rk.SoftBoundsReference,
    "ReRamArrayHfO2PresetDevice": rk.SoftBoundsReference,
    "ReRamESPresetDevice": rk.ExpStep,
    "PCMPresetDevice": rk.ExpStep,
}


def folder() -> Path:
    """Where the files of this topic are."""
    return reference.folder("analog")


@cache
def sets(kind: str) -> dict:
    """Parameters of all sets of a kind whose cell is one of ours."""
    with open(folder() / f"{kind}.json") as file:
        return json.load(file)["sets"]


@cache
def arrays(kind: str) -> dict:
    with np.load(folder() / f"{kind}.npz") as file:
        return {name: file[name] for name in file.files}


def cell(device: dict, **changes) -> rk.Cell:
    """Build our cell from the reference's parameters."""
    cls = CELLS[device["_class"]]
    known = {field.name for field in fields(cls)} - {"drift"}
    return cls(**{name: value for name, value in device.items() if name in known} | changes)


def update(parameters: dict) -> rk.UpdateParameters:
    """Build our update parameters from the reference's."""
    known = {field.name for field in fields(rk.UpdateParameters)}
    return rk.UpdateParameters(**{k: v for k, v in parameters.items() if k in known})


def io(parameters: dict) -> rk.IOParameters:
    """Build our IO parameters from the reference's."""
    known = {field.name for field in fields(rk.IOParameters)}
    return rk.IOParameters(**{k: v for k, v in parameters.items() if k in known})


# What a tile has in other words, or has not: where it is drawn from, counts, drift of its own.
NOT_OURS = {"_class", "construction_seed", "count_pulses", "drift"}


@cache
def presets() -> dict:
    """Defaults and presets of the reference."""
    with open(folder() / "presets_and_defaults.json") as file:
        return json.load(file)
