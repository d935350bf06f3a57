"""Memory hierarchy and compute rates of the cycle model.

Times are whole numbers of cycles. The given numbers define what a cycle is: a clock tick, a
nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from rpukit._checks import Checked, InstanceOf, Kind, Many, Whole, instance, integer, shown
from rpukit.errors import ParameterError
from rpukit.tiled.rates import Rate

MOST = 1 << 62  # bytes, cycles, rates: sums of a few fit an int64

__all__ = ["Compute", "Hierarchy", "Level", "gpu", "siracusa_l2", "siracusa_l3"]


@dataclass(frozen=True, slots=True)
class Level(Checked):
    """A memory level and its link to the next outer one.

    A transfer of ``n`` bytes in ``r`` contiguous rows over the link takes
    ``setup + r row + ceil(n / width)`` cycles.

    Parameters
    ----------
    name : str
    bytes : int
        Size of the memory.
    width : int
        Bytes per cycle over the link.
    setup, row : int
        Cycles per transfer, and per contiguous row of it.
    duplex : bool
        True: one engine for each direction; False: one engine serves both in order of issue.
    align : int
        Every address in this memory is a multiple of it, in bytes.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit.tiled import Level
    >>> Level("L1", 128_000, width=8, setup=20, row=4).cycles(1024, 2)
    156
    """

    name: str
    bytes: int
    width: int = 8
    setup: int = 0
    row: int = 0
    duplex: bool = True
    align: int = 8

    KINDS: ClassVar[dict[str, Kind]] = {
        **dict.fromkeys(("bytes", "width", "align"), Whole(1, MOST)),
        **dict.fromkeys(("setup", "row"), Whole(0, MOST)),
    }

    def cycles(self, n_bytes: int, rows: int = 1) -> int:
        """Cycles of one transfer over the link.

        Parameters
        ----------
        n_bytes, rows : int

        Returns
        -------
        int
        """
        return self.setup + rows * self.row - (-n_bytes // self.width)

    def rounded(self, n_bytes: int) -> int:
        """Size of a block, rounded up so that the next one is aligned.

        Parameters
        ----------
        n_bytes : int

        Returns
        -------
        int
        """
        return -(-n_bytes // self.align) * self.align


@dataclass(frozen=True, slots=True)
class Compute(Checked):
    """Compute rates: a tile takes ``launch`` cycles, plus multiply-adds or elements at a rate.

    Parameters
    ----------
    launch : int
        Cycles per call.
    macs, ew : int
        Multiply-adds per cycle, and elements per cycle for an op without products.
    rates : tuple of Rate
        Measured cycles of some ops, which take the place of these numbers (`calibrate`).

    Raises
    ------
    ParameterError
    """

    launch: int = 100
    macs: int = 8
    ew: int = 8
    rates: tuple[Rate, ...] = ()

    KINDS: ClassVar[dict[str, Kind]] = {
        "launch": Whole(0, MOST),
        **dict.fromkeys(("macs", "ew"), Whole(1, MOST)),
        "rates": Many(InstanceOf((Rate,))),
    }

    def cycles(self, macs: int, elements: int) -> int:
        """Cycles of one tile; elements count where there are no multiply-adds.

        Parameters
        ----------
        macs, elements : int

        Returns
        -------
        int
        """
        return self.launch + (-(-macs // self.macs) if macs else -(-elements // self.ew))

    def rate(self, op: str) -> Rate | None:
        """Find the measured rate of an op.

        Parameters
        ----------
        op : str

        Returns
        -------
        Rate or None
        """
        return next((rate for rate in self.rates if rate.op == op), None)

    def _rate_of(self, op: str, space: Any) -> Rate | None:
        return self.rate(key(op, space)) if self.rates else None

    def tile(self, op: str, space: Any, box: Sequence[tuple[int, int]]) -> int:
        """Cycles of one tile of an op, by its measured rate where there is one.

        Parameters
        ----------
        op : str
        space : TileSpace
        box : sequence of (int, int)
            One range for each axis.

        Returns
        -------
        int
        """
        rate, macs, elements = self._rate_of(op, space), space.macs(box), space.elements(box)
        if rate is None:
            return self.cycles(macs, elements)
        rows, columns = free_lengths(space, [hi - lo for lo, hi in box])
        return rate.tile(rows, columns, macs or elements)

    def tiles(self, op: str, space: Any, lengths: Sequence[Any]) -> Any:
        """Cycles of many tiles of an op at once.

        Parameters
        ----------
        op : str
        space : TileSpace
        lengths : sequence of array of int64
            Lengths of the tiles along each axis.

        Returns
        -------
        array of int64
        """
        points = -(-prod(lengths, start=np.int64(1)) * space.steps // space.divide)
        rate = self._rate_of(op, space)
        if rate is None:
            return self.launch - (-points // (self.macs if space.product else self.ew))
        return rate.tiles(*free_lengths(space, lengths), points)

    def to_dict(self) -> dict[str, Any]:
        """Describe the rates for JSON; `rates` are left out where there are none.

        Returns
        -------
        dict
        """
        data = asdict(self)
        if not self.rates:
            del data["rates"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Parameters
        ----------
        data : mapping

        Returns
        -------
        Compute
        """
        return cls(**{**data, "rates": tuple(Rate(**rate) for rate in data.get("rates", ()))})


def key(op: str, space: Any) -> str:
    """Name the rate of an op: a stack of products has its own.

    Parameters
    ----------
    op : str
    space : TileSpace

    Returns
    -------
    str
        "MatMul stack" for products, each of factors of its own.
    """
    if not space.product or op not in ("Gemm", "MatMul"):
        return op
    factors = [operand for operand in space.operands if operand.slot < 2]
    stacked = all(len(o.spans) > 2 for o in factors)
    return "MatMul stack" if len(factors) == 2 and stacked else op


def free_lengths(space: Any, lengths: Sequence[Any]) -> tuple[Any, Any]:
    """Find the rows and columns of a tile: of its free axes, the last one gives the columns.

    Parameters
    ----------
    space : TileSpace
    lengths : sequence of int or array
        Of each axis.

    Returns
    -------
    rows, columns : int or array
    """
    summed = space.axes[-1:] if space.product else ()  # k of an update is whole, but free
    pairs = zip(space.axes, lengths, strict=True)
    free = [n for axis, n in pairs if axis.kind != "reduce" and axis not in summed]
    return prod(free[:-1]), free[-1] if free else 1


_LEVELS = Many(InstanceOf((Level,)))


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Memory levels, from the outermost, the home of the tensors, to that of the kernels.

    Parameters
    ----------
    levels : sequence of Level
        Two or more, outermost first, with different names.
    compute : Compute

    Raises
    ------
    ParameterError
    """

    levels: tuple[Level, ...]
    compute: Compute = Compute()

    def __init__(self, levels: Sequence[Level], compute: Compute | None = None) -> None:
        given = _LEVELS.take(levels, "levels")
        object.__setattr__(self, "levels", given)
        object.__setattr__(self, "compute", instance(compute, Compute, "compute", Compute()))
        names = [level.name for level in self.levels]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ParameterError(f"levels: got {names}, need two or more, each with its own name")

    def __len__(self) -> int:
        return len(self.levels)

    def __getitem__(self, k: int) -> Level:
        return self.levels[k]

    def index(self, name: str) -> int:
        """Find a level by its name.

        Parameters
        ----------
        name : str

        Returns
        -------
        int

        Raises
        ------
        ParameterError
        """
        names = [level.name for level in self.levels]
        if not isinstance(name, str) or name not in names:
            raise ParameterError(f"level: got {shown(name)}, need one of {names}")
        return names.index(name)


def siracusa_l2(l1: int = 128_000, l2: int = 2_000_000) -> Hierarchy:
    """Preset: tensors live in the on-chip memory of a Siracusa-like controller.

    Parameters
    ----------
    l1, l2 : int
        Bytes; decimal, as the tests of Deeploy count them.

    Returns
    -------
    Hierarchy

    Examples
    --------
    >>> from rpukit.tiled import siracusa_l2
    >>> [level.name for level in siracusa_l2().levels]
    ['L2', 'L1']
    """
    return Hierarchy((Level("L2", l2), Level("L1", l1, width=8, setup=20, row=4)))


def siracusa_l3(l1: int = 128_000, l2: int = 2_000_000, l3: int = 64_000_000) -> Hierarchy:
    """Preset: tensors live in the external memory of a Siracusa-like controller (two hops).

    Parameters
    ----------
    l1, l2, l3 : int
        Bytes; decimal.

    Returns
    -------
    Hierarchy

    Examples
    --------
    >>> from rpukit.tiled import siracusa_l3
    >>> [level.width for level in siracusa_l3().levels[1:]]
    [1, 8]
    """
    return Hierarchy(
        (
            Level("L3", l3),
            Level("L2", l2, width=1, setup=200, row=30),
            Level("L1", l1, width=8, setup=20, row=4),
        )
    )


def gpu(budget: int, host: int = 1 << 40) -> Hierarchy:
    """Preset: tensors live in pinned host memory; a part of the GPU's memory holds tiles.

    A cycle is a nanosecond; the rates were measured on an H200 on PCIe 5: 51 bytes/ns each way
    while both are busy, tiles of products of some 15 multiply-adds/ps.

    Parameters
    ----------
    budget : int
        Bytes of device memory. One part in 128 is reserved for the parameters of the tiles, some
        400 bytes per tile.
    host : int
        Bytes of pinned memory.

    Returns
    -------
    Hierarchy

    Examples
    --------
    >>> from rpukit.tiled import gpu
    >>> gpu(1 << 30)[1].bytes
    1065353216
    """
    budget = integer(budget, "budget", low=1, high=MOST, what="bytes")
    device = Level("device", budget - budget // 128, width=51, setup=2500, row=8, align=256)
    return Hierarchy(
        (Level("host", host, align=256), device), Compute(launch=5000, macs=15000, ew=250)
    )
