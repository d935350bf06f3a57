"""`Plan`: a plan that can be trained by, written as C, printed and saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rpukit.errors import FormatError
from rpukit.summaries import Described, Summary
from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan, read_json
from rpukit.tiled.runtime.codegen.generate import generate_c
from rpukit.tiled.runtime.describe import plan_summary
from rpukit.tiled.runtime.report import describe
from rpukit.tiled.runtime.trainer import Trainer
from rpukit.tiled.verify.structure import shared_memory, structural_faults, token_faults

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan(BasePlan, Described):
    """A plan of one graph, or of a training graph and its optimiser's graph.

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

    def _describe(self) -> Summary:
        return plan_summary(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a plan written by `to_json`, and check its structure.

        Parameters
        ----------
        text : str

        Returns
        -------
        Plan
            Its addresses and lengths are within their levels. Whether it belongs to a graph is
            checked by `check_plan`, `trainer` and `generate_c`, which get both.

        Raises
        ------
        FormatError
        """
        plan = read_json(cls, text)
        faults = structural_faults(plan) or shared_memory(plan)
        for program in plan.programs if not faults else ():
            faults = faults or token_faults(program)
        if faults:
            raise FormatError("not a plan that can run:\n" + "\n".join(faults))
        return plan

    def trainer(self, training: Training, **options: Any) -> Trainer:
        """Make a trainer that executes this plan.

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
