"""Cells with several devices at each cross-point: vector, reference, one-sided.

Their arrays of weights are in ``arrays/compound.py``.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from rpukit.analog.cells import Cell, ConstantStep, PulsedCell, SoftBounds
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters

__all__ = ["OneSided", "Reference", "UpdatePolicy", "Vector"]


class UpdatePolicy(Enum):
    """Which devices of a `Vector` cell get the pulses of a sample.

    Attributes
    ----------
    ALL
        Every device gets the same pulse trains.
    SINGLE_FIXED
        Always the device ``first_update_idx``.
    SINGLE_SEQUENTIAL
        One device a sample, in turn; sample 0 goes to ``first_update_idx + 1``.
    SINGLE_RANDOM
        One device a sample, drawn uniformly.
    """

    ALL = "ALL"
    SINGLE_FIXED = "SINGLE_FIXED"
    SINGLE_SEQUENTIAL = "SINGLE_SEQUENTIAL"
    SINGLE_RANDOM = "SINGLE_RANDOM"


def with_inherited_parameters(cls: type[Any]) -> type[Any]:
    """Add inherited parameters to a docstring, except those that it documents itself."""
    heading = "Parameters\n----------\n"
    entry = re.compile(r"^(\w+(?:, \w+)*) : .*\n(?:    .*\n)*", re.M)

    def entries(of: type[Any]) -> dict[str, str]:
        text = inspect.cleandoc(of.__doc__ or "").partition(heading)[2].partition("\nRaises")[0]
        return {match[1]: match[0] for match in entry.finditer(text.rstrip() + "\n")}

    own, inherited = entries(cls), entries(cls.__mro__[1])
    common = "".join(text for name, text in inherited.items() if name not in own)
    doc = inspect.cleandoc(cls.__doc__ or "")
    cls.__doc__ = doc.replace(heading, heading + common, 1)
    return cls


@dataclass(frozen=True, slots=True, kw_only=True)
class CompoundCell(Cell):
    """Base class of cells with several devices."""

    def parts(self) -> tuple[PulsedCell, ...]:
        """Return the devices of a cross-point, in order."""
        raise NotImplementedError  # pragma: no cover

    def weights_of_parts(self) -> tuple[float, ...]:
        """Return the factor gamma of each device in the visible weight."""
        raise NotImplementedError  # pragma: no cover

    @property
    def granularity(self) -> float:
        """Mean granularity of the devices, in weight units; it scales pulse trains."""
        return float(np.mean([part.granularity for part in self.parts()]))

    def sample(self, stream: Any, shape: tuple[int, int]) -> dict[str, Any]:
        """Draw nothing: each device draws its own arrays."""
        return {}

    def _check_devices(
        self, name: str, devices: Any, low: int, high: int, nested: tuple[type, ...] = ()
    ) -> None:
        kinds = (PulsedCell, *nested)
        good = isinstance(devices, tuple) and all(isinstance(d, kinds) for d in devices)
        count = f"{low} or more" if high > 99 else f"{low} to {high}"
        need = ", ".join((f"{count} pulsed cells", *(kind.__name__ for kind in nested)))
        self._need(good and low <= len(devices) <= high, name, f"a tuple of {need}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(CompoundCell):
    """Several devices at each cross-point; the visible weight is their weighted sum.

    ``W = sum_k gamma_k w_k``. Setting weights sets every device to W, or with SINGLE_FIXED only
    the one that learns.

    Parameters
    ----------
    devices : tuple of PulsedCell
    update_policy : UpdatePolicy
    first_update_idx : int, 0 to n_device - 1
    gamma_vec : tuple of float
        Factors of the devices; if empty, each is 1 / n_device.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Boybat et al., "Neuromorphic computing with multi-memristive synapses", Nature
    Communications 9:2514 (2018).

    Examples
    --------
    >>> import rpukit as rk
    >>> pair = rk.Vector(devices=(rk.ConstantStep(), rk.SoftBounds()))
    >>> [type(array.cell).__name__ for array in rk.AnalogTile((2, 3), pair, seed=1).arrays]
    ['ConstantStep', 'SoftBounds']
    """

    devices: tuple[PulsedCell, ...] = (ConstantStep(), ConstantStep())
    update_policy: UpdatePolicy = UpdatePolicy.ALL
    first_update_idx: int = 0
    gamma_vec: tuple[float, ...] = ()

    def _check(self) -> None:
        self._check_devices("devices", self.devices, 1, 10**6)
        n = len(self.devices)
        self._need(
            0 <= self.first_update_idx < n,
            "first_update_idx",
            f"an integer from 0 to {n - 1}",
        )
        self._need(
            len(self.gamma_vec) in (0, n) and all(np.isfinite(g) for g in self.gamma_vec),
            "gamma_vec",
            f"() or {n} finite numbers",
        )

    def parts(self) -> tuple[PulsedCell, ...]:
        return self.devices

    def weights_of_parts(self) -> tuple[float, ...]:
        n = len(self.devices)
        return self.gamma_vec or (1.0 / n,) * n


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(CompoundCell):
    """A device that learns, minus a static reference device: ``W = w_0 - w_1``.

    Pulses and set weights go to device 0; the reference is set by
    ``tile.arrays[1].set_weights(...)``.

    Parameters
    ----------
    devices : tuple of PulsedCell, one or two
        A single one describes both devices.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Kim et al., "Zero-shifting technique for deep neural network training on resistive
    cross-point arrays", arXiv 1907.10228 (2019).

    Examples
    --------
    >>> import rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.Reference(devices=(rk.SoftBounds(),)), seed=1)
    >>> len(tile.arrays)
    2
    """

    devices: tuple[PulsedCell, ...] = (SoftBounds(),)

    def _check(self) -> None:
        self._check_devices("devices", self.devices, 1, 2)

    def parts(self) -> tuple[PulsedCell, ...]:
        return self.devices if len(self.devices) == 2 else (self.devices[0], self.devices[0])

    def weights_of_parts(self) -> tuple[float, ...]:
        return (1.0, -1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided(CompoundCell):
    """Two devices that are only pulsed up: ``W = w_plus - w_minus``.

    A pulse that would raise the weight raises the plus device; one that would lower it raises the
    minus device. Device 0 of a tile is minus, device 1 is plus.

    Every ``refresh_every`` updates both devices are read. Cells in which both are close to
    saturation are reset, and their difference is written back. With b the bound ``|w_max|``, a
    cell is refreshed where the larger read is above ``b refresh_upper_thres`` and the smaller one
    above ``b refresh_lower_thres``.

    Parameters
    ----------
    device : PulsedCell
    refresh_every : int, at least 0
        Updates (samples, or mini-batches with `units_in_mbatch`) between refreshes; 0 means never.
    units_in_mbatch : bool
    refresh_upper_thres, refresh_lower_thres : float, relative to the bound
    copy_inverted : bool
        Exchange up and down in the plus device, both steps and bounds.
    refresh_forward : IOParameters
        Periphery of the reads of the devices.
    refresh_update : UpdateParameters
        Pulses that write the difference.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Rasch et al., "A flexible and fast PyTorch toolkit for simulating training and
    inference on analog crossbar arrays", AICAS 2021.

    Examples
    --------
    >>> import rpukit as rk
    >>> cell = rk.OneSided(device=rk.SoftBounds(w_min=0), refresh_every=100)
    >>> rk.AnalogTile((2, 3), cell, seed=1).n_pulses
    0
    """

    device: PulsedCell = field(default_factory=SoftBounds)
    refresh_every: int = 0
    units_in_mbatch: bool = True
    refresh_upper_thres: float = 0.75
    refresh_lower_thres: float = 0.25
    copy_inverted: bool = False
    refresh_forward: IOParameters = field(default_factory=IOParameters)
    refresh_update: UpdateParameters = field(default_factory=UpdateParameters)

    def _check(self) -> None:
        self._need(isinstance(self.device, PulsedCell), "device", "a pulsed cell")
        every = self.refresh_every
        good = isinstance(every, int) and not isinstance(every, bool) and every >= 0
        self._need(good, "refresh_every", "an integer from 0")
        self._need(
            isinstance(self.refresh_forward, IOParameters), "refresh_forward", "IOParameters"
        )
        self._need(
            isinstance(self.refresh_update, UpdateParameters), "refresh_update", "UpdateParameters"
        )
        for name in ("refresh_upper_thres", "refresh_lower_thres"):
            self._need(getattr(self, name) >= 0, name, "a number from 0")

    def parts(self) -> tuple[PulsedCell, ...]:
        return (self.device, self.device)

    def weights_of_parts(self) -> tuple[float, ...]:
        return (-1.0, 1.0)
