"""Shares of the samples of a captured step: a graph for each GPU, which counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.lanes import Lanes, mark
from rpukit.circuits.core import Core
from rpukit.circuits.learning.cuda_graph import Graph
from rpukit.circuits.learning.owners import Part
from rpukit.circuits.parameters import Statistics
from rpukit.circuits.partials import BLOCK, full_blocks
from rpukit.circuits.peers import has_numbers
from rpukit.circuits.queries.passes import (
    Pass,
    Propagation,
    Steps,
    both_ways,
    gather,
    gather_block,
    steps_of_pass,
)

__all__ = ["Counts", "RowShare", "Share"]

Array = Any
Samples = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of samples, in rows that are to be added one after the other.

    Attributes
    ----------
    rows : tuple of array, shape (n_row, n_weight) and (n_row, n_statistic)
        Of weights and of leaves.
    chains : tuple of array, or empty
        The chains of a block that is not finished.
    """

    rows: tuple[Array, Array]
    chains: tuple[Array, ...] = ()

    @classmethod
    def room(cls, like: Counts, dtype: Any, device: Device) -> Counts:
        """Allocate rows like others, of a type and on a device."""
        rows, chains = (
            tuple(_device.empty(array.shape, dtype, device) for array in arrays)
            for arrays in (like.rows, like.chains)
        )
        return cls(rows, chains)

    def arrays(self) -> tuple[Array, ...]:
        """Return all arrays."""
        return (*self.rows, *self.chains)

    def take(self, other: Counts) -> None:
        """Copy counts of the same GPU."""
        for mine, its in zip(self.arrays(), other.arrays(), strict=True):
            mine[...] = its

    def send(self, there: Counts, lanes: Lanes, *after: Any) -> None:
        """Copy the counts to another GPU, after events."""
        for mine, its in zip(self.arrays(), there.arrays(), strict=True):
            if mine.size:
                lanes.put(mine, its, *after)

    def add(self, held: Statistics, part: Part) -> None:
        """Add the rows to a part of the totals, and take over the chains."""
        for rows, total in zip(self.rows, part.of(held.totals, held.leaf_totals), strict=True):
            for k in range(len(rows) if total.size else 0):
                total += rows[k]
        if self.chains:
            chains = part.of(held.chains, held.leaf_chains)
            for mine, chain in zip(self.chains, chains, strict=True):
                chain[:] = mine


class Share:
    """Samples of one GPU, which adds their counts to its totals.

    Parameters
    ----------
    core : Core
        Of that GPU.
    samples : tuple of array
        Codes, numbers and weights, which stay in place.
    out : array, shape (n, n_root)
        Log-likelihoods.
    """

    def __init__(self, core: Core, samples: Samples, out: Array) -> None:
        self.core, self.samples, self.out = core, samples, out
        with _device.using(core.device):
            self.graphs = self._captured()

    def _captured(self) -> list[Graph]:
        return [Graph(self.core.device, self._count, self._count)]

    def launch(self) -> list[Any]:
        """Launch the graphs; return an event behind each."""
        marks = []
        for graph in self.graphs:
            graph.launch()
            marks.append(mark(self.core.device))
        return marks

    def close(self) -> None:
        """Give back the memory of the graphs."""
        for graph in self.graphs:
            graph.close()

    def _passed(self) -> Pass:
        core, (codes, numbers, weights) = self.core, self.samples
        return both_ways(core, Propagation(core.parameters), (codes, numbers), weights, self.out)

    def _count(self) -> None:
        gather(self.core.parameters, self._passed(), self.core.statistics)

    def keep(self, *samples: Array) -> None:
        """Copy samples of the same GPU."""
        for source, target in self._each(samples):
            target[...] = source

    def take(self, samples: Sequence[Array], lanes: Lanes, *after: Any) -> None:
        """Copy samples from the circuit's GPU, after events."""
        for source, target in self._each(samples):
            lanes.put(source, target, *after)

    def _each(self, samples: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
        """Pair arrays of samples with their places; numbers that no leaf reads are left out."""
        for k, pair in enumerate(zip(samples, self.samples, strict=True)):
            if k != 1 or has_numbers(self.core):
                yield pair


class RowShare(Share):
    """Samples of one GPU, whose counts are rows: other GPUs have samples that come before.

    It has a graph for each block of samples; the first one makes the passes. So rows of a block
    travel while those of the next one are made.

    Parameters
    ----------
    core, samples, out
        As of `Share`. The samples begin a block.
    parts : sequence of Part
        Those that other GPUs add.
    """

    def __init__(self, core: Core, samples: Samples, out: Array, parts: Sequence[Part]) -> None:
        n, self._n_piece, held = len(out), len(core.pieces), core.statistics
        self._n_block, self._parts = -(-n // BLOCK), parts
        n_row, n_open = self._n_block * self._n_piece, n % BLOCK
        self._open = bool(n_open)
        self._n_row = full_blocks(n) * self._n_piece
        self._n_row += core.pieces.settled(n_open) if n_open else 0
        self._run: Any = None
        self._steps: Steps = ()
        with _device.using(core.device):
            # Blocks follow one another in the same chains; each piece has totals of its own.
            self._held = held.fresh()
            self._held.totals, self._held.leaf_totals = (
                _device.zeros((n_row, total.size), total.dtype, core.device)
                for total in (held.totals, held.leaf_totals)
            )
            self._pieces = [self._row(k) for k in range(n_row)]
            self._given = [self._by_blocks(part) for part in parts]
            self._sent = [
                [Counts.room(given, core.dtype, core.device) for given in of_part]
                for of_part in self._given
            ]
        super().__init__(core, samples, out)

    def close(self) -> None:
        self._run, self._steps = None, ()
        super().close()

    def _row(self, k: int) -> Statistics:
        """Statistics whose totals are those of row k."""
        row = copy(self._held)
        row.totals, row.leaf_totals = self._held.totals[k], self._held.leaf_totals[k]
        return row

    def sent_of(self, part: Part) -> list[Counts]:
        """Return the counts of a part that go to another GPU, of each block."""
        return next(c for p, c in zip(self._parts, self._sent, strict=True) if p is part)

    def counts(self, part: Part) -> Counts:
        """Return the counts of a part, on this GPU."""
        return self._counts(part, slice(0, self._n_row), self._open)

    def _by_blocks(self, part: Part) -> list[Counts]:
        edges = [min(self._n_row, k * self._n_piece) for k in range(self._n_block + 1)]
        spans = [slice(a, b) for a, b in pairwise(edges)]
        return [self._counts(part, s, self._open and s is spans[-1]) for s in spans]

    def _counts(self, part: Part, rows: slice, chains: bool) -> Counts:
        held = self._held
        totals = part.of(held.totals[rows], held.leaf_totals[rows])
        return Counts(totals, part.of(held.chains, held.leaf_chains) if chains else ())

    def _captured(self) -> list[Graph]:
        graphs: list[Graph] = []
        for k in range(self._n_block):
            call = self._count if k == 0 else partial(self._count_block, k)
            graphs.append(Graph(self.core.device, call, call, graphs[0] if k else None))
        return graphs

    def _count(self) -> None:
        self._run, self._steps = None, ()  # of the launch before: their memory
        self._held.clear()  # before the passes: no kernel that begins early follows
        self._run = self._passed()
        self._steps = steps_of_pass(self.core.parameters, self._run)
        self._count_block(0)

    def _count_block(self, k: int) -> None:
        core, rows = self.core, slice(k * self._n_piece, (k + 1) * self._n_piece)
        given = (self._run, self._steps, self._pieces[rows])
        gather_block(core.parameters, *given, core.pieces.ends, k * BLOCK)
        for sent, own in zip(self._sent, self._given, strict=True):
            sent[k].take(own[k])
