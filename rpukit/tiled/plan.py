"""Plans as users see them: train by one, write it as C, print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan
from rpukit.tiled.runtime.codegen import generate_c
from rpukit.tiled.runtime.report import describe
from rpukit.tiled.runtime.trainer import Trainer

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan(BasePlan):
    """A plan of one graph, or of a training graph and its optimiser's.

    Parameters
    ----------
    hierarchy : Hierarchy
    buffering : str
    homes : tuple of Home
    programs : tuple of Program
    peaks : mapping of str to int
        Bytes that are taken of each level.
    """

    def __str__(self) -> str:
        return describe(self)

    def trainer(self, training: Training, **options: Any) -> Trainer:
        """Train by this plan.

        Parameters
        ----------
        training : Training
            The graphs that it was made of.
        **options
            Of `Trainer`: ``device``, ``n_accumulate``, ``parameters``, ``transfers``, ``undo``.

        Returns
        -------
        Trainer

        Raises
        ------
        PlanError, ParameterError, ShapeError, DTypeError, DeviceError
        """
        return Trainer(self, training, **options)

    def generate_c(
        self, folder: str | Path, training: Training, batches: Sequence[Any], **options: Any
    ) -> list[Path]:
        """Write this plan as C99; see `rpukit.tiled.generate_c`.

        Parameters
        ----------
        folder : str or path
        training : Training
        batches : sequence of (array, array)
        **options
            ``n_accumulate``.

        Returns
        -------
        list of Path

        Raises
        ------
        PlanError, ParameterError, ShapeError, DTypeError
        """
        return generate_c(self, training, folder, batches, **options)
