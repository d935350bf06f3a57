"""Checks of layers whose weights are split over devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit._device import Device
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm.formats import TENSOR, arithmetic, format_of

__all__ = ["even_edges", "need_edges", "need_one_arithmetic", "type_of_results"]


def type_of_results(out_dtype: Any, dtype: Any) -> np.dtype[Any]:
    """Check a type of results; None is that of the weight."""
    taken = [np.dtype(dtype)]
    if format_of(dtype) in TENSOR:
        taken.append(np.dtype(np.float32))
    wanted: np.dtype[Any] = np.dtype(dtype if out_dtype is None else out_dtype)
    if wanted not in taken:
        raise DTypeError(f"out_dtype: got {wanted}, need {' or '.join(map(str, taken))}")
    return wanted


def need_one_arithmetic(dtype: Any, devices: Sequence[Device]) -> None:
    """Raise unless all devices give products of a type the same bits."""
    tags = [arithmetic(dtype, device) for device in devices]
    for tag, device in zip(tags, devices, strict=True):
        if tag != tags[0]:
            raise DeviceError(
                f"products of {dtype} are {tags[0]} on {devices[0]} and {tag} on "
                f"{device}, need one arithmetic: use float32, or devices of one kind"
            )


def even_edges(length: int, n_piece: int, unit: int, split: str) -> list[int]:
    """Cut an axis at multiples of a unit into pieces of about one size, none of them empty."""
    n_unit = -(-length // unit)
    if n_unit < n_piece:
        raise ShapeError(
            f"weight: got {length} {split} for {n_piece} devices, need more than {unit} for "
            "each: use fewer devices"
        )
    return [*(n_unit * i // n_piece * unit for i in range(n_piece)), length]


def need_edges(edges: Sequence[int], unit: int, split: str, why: str) -> None:
    """Raise for pieces that begin elsewhere than at multiples of a unit."""
    wrong = [edge for edge in edges[:-1] if edge % unit]
    if wrong:
        near = wrong[0] // unit * unit
        raise ParameterError(
            f"{why}, so {split} are cut at multiples of {unit}: got a cut at {wrong[0]}, "
            f"allowed nearby are {near} and {near + unit}"
        )
