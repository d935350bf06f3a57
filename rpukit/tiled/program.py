"""Plain data of a plan: homes, op plans, and the instruction list that executors run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from rpukit._files.archive import CHECKSUM, digest
from rpukit._files.schema import DAMAGE
from rpukit.errors import FormatError
from rpukit.tiled.machine import Compute, Hierarchy, Level
from rpukit.tiled.tile_space import Box

__all__ = [
    "BasePlan",
    "Busy",
    "ComputeTile",
    "Copy",
    "Home",
    "Instruction",
    "OpPlan",
    "OperandPlan",
]
__all__ += ["Place", "Program", "Wait", "read_json"]

_FORMAT = "rpukit-plan", 1


@dataclass(frozen=True, slots=True)
class Copy:
    """Instruction: begin a transfer between neighbouring levels.

    Parameters
    ----------
    token : int
        Number that a `Wait` refers to; each transfer of a program has its own.
    engine : {"in", "out"}
        Towards the kernels, or away from them.
    tensor : str
    source, target : (str, int)
        Level and byte address.
    shape : tuple of int
        The last is the bytes of a contiguous run.
    source_strides, target_strides : tuple of int
        Bytes, one for each axis of `shape`; the last is 1.
    """

    token: int
    engine: Literal["in", "out"]
    tensor: str
    source: tuple[str, int]
    target: tuple[str, int]
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Instruction: wait until a transfer is done.

    Parameters
    ----------
    token : int
    """

    token: int


@dataclass(frozen=True, slots=True)
class ComputeTile:
    """Instruction: compute one tile.

    Parameters
    ----------
    node : str
    box : Box
    addresses : tuple of int
        Of each operand's packed rectangle in the innermost level.
    """

    node: str
    box: Box
    addresses: tuple[int, ...]


Instruction = Copy | Wait | ComputeTile


@dataclass(frozen=True, slots=True)
class Home:
    """Memory in which a value lives between ops.

    Parameters
    ----------
    value : str
        Its first tensor.
    level : str
    address, bytes : int
    lower, upper : int
        It lives during the steps ``lower <= step < upper``.
    lasting : bool
        Whether it persists between runs.
    """

    value: str
    level: str
    address: int
    bytes: int
    lower: int
    upper: int
    lasting: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Memory of an operand while an op runs, in a level further in than its home.

    Parameters
    ----------
    level : str
    kind : {"slots", "resident"}
        Rotating buffers of one rectangle each, or the whole value.
    block : str
        Name of the memory; ops with a resident value share it.
    addresses : tuple of int
    bytes : int
        Of one buffer.
    lower, upper : int
        Steps for which the addresses are taken.
    store : bool
        Whether results are stored to the next outer level.
    """

    level: str
    kind: Literal["slots", "resident"]
    block: str
    addresses: tuple[int, ...]
    bytes: int
    lower: int
    upper: int
    store: bool = True


@dataclass(frozen=True, slots=True)
class OperandPlan:
    """An operand of an op, and its places from the outermost inwards.

    Parameters
    ----------
    tensor, value, mode : str
    places : tuple of Place
    """

    tensor: str
    value: str
    mode: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class OpPlan:
    """Plan of one node: its tiles, its operands' places, and its cycles.

    Parameters
    ----------
    node, op : str
    extents, orders : tuple of tuple of int
        Of the tiles of each level but the outermost, and the order of the loops.
    operands : tuple of OperandPlan
    overlap : {"none", "inside", "across"}
        Whether transfers overlap with no kernel, with kernels of the op, or with those of all ops.
    reason : str
        Why there is one buffer; "" if there are more.
    n_tiles : int
    cycles : int
        Time from the end of the previous tile of the program to the end of each of its tiles.
    alone : int
        Time of the op if nothing else runs before or beside it.
    serial : int
        Time of its kernels and transfers one after another.
    least : int
        Lower bound of its time: its busiest engine, or more where copies cannot overlap with any
        kernel (the first and last of a program, and those of what the previous op computes with
        its last tile).
    band : int
        Neighbours with the same number are interleaved, tile by tile; 0 if an op is in no band.
    """

    node: str
    op: str
    extents: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    operands: tuple[OperandPlan, ...]
    overlap: Literal["none", "inside", "across"]
    reason: str
    n_tiles: int
    cycles: int = 0
    alone: int = 0
    serial: int = 0
    least: int = 0
    band: int = 0

    @property
    def hidden(self) -> float:
        """Share of the hideable transfer time that is hidden in the program."""
        able = self.hideable
        return min(1.0, max(0.0, (self.serial - self.cycles) / able)) if able else 1.0

    @property
    def hideable(self) -> int:
        """Cycles of its transfers that can overlap with kernels, its own or those of others."""
        return self.serial - self.least


class Busy(NamedTuple):
    """Busy time of an engine: "compute", or "in" or "out" with the name of the inner level."""

    engine: str
    step: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Program:
    """Program of one graph: a training step's, or the optimiser's.

    Parameters
    ----------
    name : str
    ops : tuple of OpPlan
    instructions : tuple of Instruction
    cycles : int
    moved : mapping of str to (int, int)
        Bytes in and out over the link of each level.
    transferring, hidden : int
        Cycles of all transfers, and those of them in which a kernel runs as well.
    """

    name: str
    ops: tuple[OpPlan, ...]
    instructions: tuple[Instruction, ...] = field(repr=False)
    cycles: int
    moved: Mapping[str, tuple[int, int]]
    transferring: int = 0
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class BasePlan:
    """Data of a plan, and its JSON form; `rpukit.tiled.Plan` trains and prints as well.

    Parameters
    ----------
    hierarchy : Hierarchy
    buffering : str
    homes : tuple of Home
    programs : tuple of Program
    peaks : mapping of str to int
        Bytes that are taken of each level.
    """

    hierarchy: Hierarchy
    buffering: str
    homes: tuple[Home, ...] = field(repr=False)
    programs: tuple[Program, ...] = field(repr=False)
    peaks: Mapping[str, int]

    @property
    def cycles(self) -> int:
        """Cycles of all programs in the model."""
        return sum(program.cycles for program in self.programs)

    def ops(self) -> Iterator[OpPlan]:
        """Iterate over the ops of all programs.

        Yields
        ------
        OpPlan
        """
        for program in self.programs:
            yield from program.ops

    def to_json(self) -> str:
        """Write the plan as JSON text.

        Returns
        -------
        str
        """
        programs = []
        for program in self.programs:
            data = asdict(program)
            data["instructions"] = [
                [_NAMES[type(one)], *(getattr(one, name) for name in one.__slots__)]
                for one in program.instructions
            ]
            programs.append(data)
        data = {
            "format": _FORMAT,
            "levels": [asdict(level) for level in self.hierarchy.levels],
            "compute": self.hierarchy.compute.to_dict(),
            "buffering": self.buffering,
            "homes": [asdict(home) for home in self.homes],
            "programs": programs,
            "peaks": dict(self.peaks),
        }
        text = json.dumps(data, separators=(",", ":"))
        return f'{text[:-1]},"{CHECKSUM}":"{digest(json.loads(text))}"}}'


_KINDS = {"Copy": Copy, "Wait": Wait, "Compute": ComputeTile}
_NAMES = {kind: name for name, kind in _KINDS.items()}


AnyPlan = TypeVar("AnyPlan", bound=BasePlan)


def read_json(kind: type[AnyPlan], text: str) -> AnyPlan:
    """Read a plan written by `BasePlan.to_json`, without checking it.

    Parameters
    ----------
    kind : type
        Of the plan.
    text : str

    Returns
    -------
    BasePlan

    Raises
    ------
    FormatError
    """
    try:
        data = json.loads(text)
        proved, claimed = CHECKSUM in data, data.pop(CHECKSUM, None)
        if proved and claimed != digest(data):  # plans of earlier versions have none
            raise FormatError("not as it was written: the content does not match its checksum")
        if tuple(data["format"]) != _FORMAT:
            raise FormatError(f"format: got {data['format']}, need {list(_FORMAT)}")
        levels = [Level(**level) for level in data["levels"]]
        return kind(
            Hierarchy(levels, Compute.from_dict(data["compute"])),
            data["buffering"],
            tuple(Home(**home) for home in data["homes"]),
            tuple(_program(one) for one in data["programs"]),
            data["peaks"],
        )
    except FormatError:
        raise
    except DAMAGE as error:
        raise FormatError(f"not a plan: {type(error).__name__}: {error}") from error


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _program(data: dict[str, Any]) -> Program:
    ops = []
    for op in data["ops"]:
        operands = []
        for operand in op["operands"]:
            places = [Place(**{k: _tuples(v) for k, v in p.items()}) for p in operand["places"]]
            operands.append(OperandPlan(**{**operand, "places": tuple(places)}))
        given = {key: _tuples(value) for key, value in op.items()}
        ops.append(OpPlan(**{**given, "operands": tuple(operands)}))
    instructions = tuple(_KINDS[kind](*map(_tuples, rest)) for kind, *rest in data["instructions"])
    moved = {level: tuple(both) for level, both in data["moved"].items()}
    return Program(**{**data, "ops": tuple(ops), "instructions": instructions, "moved": moved})
