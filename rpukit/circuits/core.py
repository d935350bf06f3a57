"""`Core`: the parts of a circuit, on which queries and learning work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from rpukit import _device
from rpukit._checks import integer, one_of, real_type, shown
from rpukit._device import Device
from rpukit._kernels.calls import CallState
from rpukit.circuits.compiled.encoder import Encoder
from rpukit.circuits.compiled.layout import Layout, make_layout
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes
from rpukit.circuits.memory import Memory
from rpukit.circuits.momenta import Momenta
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.circuits.partials import PART, Pieces, pieces_of
from rpukit.errors import DTypeError, ParameterError
from rpukit.random import Stream

__all__ = ["CircuitLike", "Core", "make_core"]

Array = Any

_DRAWS = (1 << 48) - 1  # child stream of samples; those of parameters count from 0


class CircuitLike(Protocol):
    """Interface of a circuit to those of its methods that other modules define.

    Steps of learning call one another through the circuit, so that a subclass may override them.
    """

    _core: Core
    log_likelihood: Any
    accumulate: Any
    em_step: Any
    scaled_em_step: Any
    gradient_step: Any


@dataclass(slots=True)
class Core:
    """The parts of a circuit: its compiled graph, arrays, checks of data, memory and draws."""

    layout: Layout
    dtype: np.dtype[Any]
    device: Device
    parameters: Parameters
    statistics: Statistics
    encoder: Encoder
    memory: Memory
    stream: Stream  # of samples drawn, and of the order of samples in `fit`
    n_drawn: int = 0
    momenta: Momenta | None = None
    waiting: dict[int, Any] = field(default_factory=dict)  # partial statistics before their turn
    peers: Any = None  # other GPUs that pass over samples
    structure: str | None = None  # fingerprint of the graph, once asked
    workspace: Any = None  # of passes whose blocks are gathered apart
    cut: Pieces | None = None  # `pieces`, once asked
    columns: Any = None  # of node vectors in rows, once asked
    call_state: CallState = field(default_factory=CallState)

    def copied(self) -> Core:
        """Copy everything that changes; the compiled graph is shared."""
        parameters = self.parameters.duplicated()
        statistics = self.statistics.duplicated()
        return replace(
            self,
            parameters=parameters,
            statistics=statistics,
            encoder=Encoder(self.layout, self.dtype, self.device),
            memory=Memory(parameters, statistics, self.memory.budget),
            momenta=None if self.momenta is None else self.momenta.copied(),
            call_state=CallState(),
            waiting=dict(self.waiting),
            workspace=None,
            peers=None,
        )

    @property
    def pieces(self) -> Pieces:
        """Pieces of a block of samples, whose counts have a row each; see `pieces_of`."""
        if self.cut is None:
            counts: list[int] = []
            if self.dtype == np.float32:
                for uses, by_parts in self.parameters.counted:
                    n = np.diff(uses.first)
                    counts += (-(-n // PART) if by_parts else n).tolist()
                functions = self.parameters.rows.functions
                for leaves in (self.statistics.leaves, *functions):
                    counts += np.diff(_device.to_numpy(leaves.use_first)).tolist()
            self.cut = pieces_of(counts)
        return self.cut

    def parts(self, n: int) -> Iterator[slice]:
        """Cut n samples into passes that fit the memory; each takes its arrays from the arena."""
        step = self.memory.fitting(learns=True)
        for first in range(0, n, step):
            part = slice(first, min(first + step, n))
            with self.memory.opened(part.stop - first, learns=True):
                yield part

    def need_no_gap(self, name: str) -> None:
        """Check that no partial statistics wait for samples before theirs."""
        if self.waiting:
            first, held = min(self.waiting), self.statistics.n_sample
            raise ParameterError(
                f"{name}: samples {held} to {first - 1} are missing, while partial statistics "
                f"from sample {first} on wait for them: absorb those of the missing samples first"
            )

    def need_one_root(self, name: str) -> None:
        """Check that a query which is about one distribution has one."""
        n_root = self.layout.root_rows.size
        if n_root > 1:
            raise ParameterError(f"{name}: this circuit has {n_root} roots, need one")

    def owner(self, nodes: Nodes) -> Any:
        """Find the node vector that owns the parameters of ``nodes``."""
        known = isinstance(nodes, (SumNodes, InputNodes)) and nodes.number in self.layout.rows
        if not known:
            raise ParameterError(
                f"nodes: got {shown(nodes)}, need inputs or sums of this circuit "
                "(circuit.layout.nodes)"
            )
        return nodes.source

    def by_nodes(self, array: Array) -> dict[Nodes, Array]:
        """Select the columns of each node vector with rows, as views where they are adjacent."""
        if self.columns is None:
            self.columns = _columns(self.layout, self.parameters.on_device)
        own, runs, others, in_order = self.columns
        views: list[Array] = []
        for part, shape in runs:
            views.extend(array[:, part].reshape(len(array), *shape).swapaxes(0, 1))
        views.extend(array[:, rows] for rows in others)
        return dict(zip(own, in_order(views), strict=True))

    def unknown(self, n: int) -> tuple[Array, Array]:
        """Make codes and numbers of n samples of which nothing is known."""
        xp, shape = _device.namespace_of(self.device), (n, self.layout.n_variable)
        return xp.full(shape, -1, np.int32), xp.full(shape, np.nan, self.dtype)


def make_core(
    roots: Nodes | Sequence[Nodes],
    seed: int | np.random.SeedSequence | Stream,
    dtype: Any,
    home: Device,
    precision: str,
    budget: int | None,
) -> Core:
    """Check what `Circuit` was given, compile the graph and allocate its arrays."""
    given = list(roots) if isinstance(roots, Sequence) else [roots]
    if not given or not all(isinstance(root, Nodes) for root in given):
        raise DTypeError(f"roots: got {shown(roots)}, need node vectors")
    dtype = real_type(dtype)
    one_of(precision, "precision", ("fp32", "bf16", "bf16x3"))
    if budget is not None:
        budget = integer(budget, "budget", low=1, what="bytes")
    if precision != "fp32" and dtype != np.float32:
        raise DTypeError(f'precision "{precision}": got dtype {dtype}, need float32')
    layout = make_layout(given)
    stream = Stream.from_seed(seed)
    parameters = Parameters(layout, stream, dtype, home, precision=precision)
    statistics = Statistics(parameters)
    encoder, memory = Encoder(layout, dtype, home), Memory(parameters, statistics, budget)
    drawn = stream.child(_DRAWS)
    return Core(layout, dtype, home, parameters, statistics, encoder, memory, drawn)


def _columns(layout: Layout, on_device: Callable[[Array], Array]) -> tuple[Any, ...]:
    """Find the rows of node vectors: runs of vectors of one size side by side, and others.

    Returns the nodes; slices of runs and their shapes; rows of others; what puts the views of all
    these in the order of the nodes. (To iterate over an array is faster than to slice it often.)
    """
    own = [nodes for nodes in layout.nodes if nodes.number in layout.rows]
    rows = [layout.rows[nodes.number] for nodes in own]
    firsts = [int(r[0]) if (np.diff(r) == 1).all() else -1 for r in rows]
    adjacent = sorted((first, k) for k, first in enumerate(firsts) if first >= 0)
    runs: list[list[int]] = []  # first row, vectors, size of each
    for first, k in adjacent:
        size = rows[k].size
        if runs and runs[-1][2] == size and first == runs[-1][0] + runs[-1][1] * size:
            runs[-1][1] += 1
        else:
            runs.append([first, 1, size])
    others = [k for k, first in enumerate(firsts) if first < 0]
    place = {k: at for at, k in enumerate([k for _, k in adjacent] + others)}
    picked = [place[k] for k in range(len(own))]
    in_order = itemgetter(*picked) if len(picked) > 1 else tuple
    parts = [(slice(first, first + n * size), (n, size)) for first, n, size in runs]
    return own, parts, [on_device(rows[k]) for k in others], in_order
