"""`InferenceCell`: the settings of inference tiles, in the place of a cell."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from rpukit._checks import TINY, instance, member, number
from rpukit.inference.conductance.converters import Converter
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.tile.compensation import DriftCompensation
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import WeightModifier

__all__ = ["InferenceCell"]

_CLASSES: dict[str, type] = {
    "noise": NoiseModel,
    "converter": Converter,
    "modifier": WeightModifier,
    "weight_clip": WeightClip,
    "weight_remap": WeightRemap,
    "input_range": InputRange,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCell:
    """Settings of inference tiles, where `rpukit.TileArray` takes a cell.

    Parameters
    ----------
    noise : NoiseModel, optional
        Programming, drift and reading; default: `PCMLike`.
    converter : Converter, optional
        From weights to conductances.
    modifier : WeightModifier, optional
        Change of the weights that ``post_step`` makes for the next pass.
    weight_clip : WeightClip, optional
    weight_remap : WeightRemap, optional
    input_range : InputRange, optional
        Range to which activations are clipped; it replaces noise management.
    compensation : DriftCompensation or str
        Correction of drift at the outputs.
    w_max : float, positive, weight units, optional
        Weight that becomes the largest conductance; default: the largest of the tile.

    Raises
    ------
    ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> from rpukit.inference import Hermes, InferenceCell
    >>> rk.TileArray((700, 1000), InferenceCell(noise=Hermes()), seed=7).grid
    (2, 2)
    """

    noise: NoiseModel | None = None
    converter: Converter | None = None
    modifier: WeightModifier | None = None
    weight_clip: WeightClip | None = None
    weight_remap: WeightRemap | None = None
    input_range: InputRange | None = None
    compensation: DriftCompensation | str = DriftCompensation.NONE
    w_max: float | None = None

    def __post_init__(self) -> None:
        for name, kind in _CLASSES.items():
            value = getattr(self, name)
            if value is not None:
                instance(value, kind, name)
        kept: Any = member(DriftCompensation, self.compensation, "compensation")
        object.__setattr__(self, "compensation", kept)
        if self.w_max is not None:
            object.__setattr__(self, "w_max", number(self.w_max, "w_max", low=TINY))

    def options(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of `rpukit.InferenceTile`.

        Returns
        -------
        dict
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}
