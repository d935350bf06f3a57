"""Statistics of blocks of samples, apart and added up: methods of `Circuit`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import changes
from rpukit.circuits.core import CircuitLike, Core
from rpukit.circuits.memory import PASS
from rpukit.circuits.ops import em as steps
from rpukit.circuits.parameters import Statistics
from rpukit.circuits.partials import BLOCK, Partials, Pieces, check_first, full_blocks
from rpukit.circuits.queries.passes import (
    Propagation,
    as_type,
    both_ways,
    gather_blocks,
    propagation_of,
)
from rpukit.circuits.queries.propagation import Rule
from rpukit.circuits.state import structure_of
from rpukit.errors import DTypeError, ParameterError, ShapeError, StructureError

__all__ = ["absorb", "add_rows", "block_step", "counted", "partials"]

Array = Any
Part = tuple[slice, Array, Array]


def partials(
    self: CircuitLike,
    x: Any,
    *,
    first_sample: int = 0,
    missing: Any = None,
    weights: Any = None,
    rule: Rule | None = None,
) -> Partials:
    """Compute the expected counts of samples by blocks of 256; the circuit is not changed.

    Parameters
    ----------
    x : array, shape (n_sample, n_variables)
        Any number of samples; fewer than a multiple of 256 are the end of the data.
    first_sample : int
        Number of samples before these since the last step of learning, a multiple of 256.
    missing, weights, rule : optional
        As in `flows`.

    Returns
    -------
    Partials
        On the circuit's device; one row of counts for each block. Its ``log_likelihoods`` are
        those of `log_likelihood`.

    Raises
    ------
    ShapeError, DTypeError, NonFiniteError, ParameterError

    Notes
    -----
    `absorb` adds them to the bits of `accumulate`, wherever and in whichever order they were made.
    """
    core = self._core
    first, propagation = check_first(first_sample), propagation_of(core.parameters, rule)
    n, read = core.encoder.parts(x, missing, block_step(core))
    flows = core.encoder.weights(weights, n)
    chains, leaf_chains, out = counted(core, propagation, n, read, flows)
    return Partials(
        first_sample=first,
        n_sample=n,
        chains=chains,
        leaf_chains=leaf_chains,
        log_likelihoods=out,
        flows=flows,
        exponent=float(propagation.exponent),
        structure=structure_of(core),
        parameters=_parameters_of(core),
        n_piece=len(core.pieces),
    )


@changes
def absorb(self: CircuitLike, partials: Partials | Iterable[Partials]) -> Any:
    """Add partial statistics to those that the next step of learning uses.

    Parameters
    ----------
    partials : Partials or iterable of Partials
        In any order. Those that come before their turn wait, and are added once the samples
        before them are there.

    Returns
    -------
    Circuit
        This circuit.

    Raises
    ------
    DTypeError, ShapeError
        If these are no partial statistics, or of another type.
    StructureError
        If they are of another graph.
    ParameterError
        If they are of other parameters or another rule, of samples that are counted already, or
        follow a block that is not finished. The circuit is unchanged then.

    Notes
    -----
    Blocks are added in ascending order, as `accumulate` adds them: the bits are the same. While
    some wait, `accumulate`, steps of learning and `state` raise an error that names the samples
    that are missing.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (700, 3))
    >>> pc = rk.Circuit(rk.circuits.mixture(3, 2, rk.circuits.Bernoulli()), seed=1)
    >>> parts = [pc.partials(x[k : k + 256], first_sample=k) for k in (512, 0, 256)]
    >>> for part in parts:
    ...     pc = pc.absorb(part)
    >>> pc.em_step()
    """
    core = self._core
    given = _listed(partials)
    for one in given:
        if not isinstance(one, Partials):
            raise DTypeError(f"partials: got {type(one).__name__}, need rpukit.circuits.Partials")
    if not given:
        return self
    fingerprint = _parameters_of(core)
    for one in given:
        _check_same(core, one, fingerprint)
    waiting = _in_turn(core, given)
    core.call_state.changing()
    core.waiting = waiting
    while core.statistics.n_sample in core.waiting:
        _add(core, core.waiting.pop(core.statistics.n_sample))
    return self


def _listed(partials: Any) -> list[Any]:
    try:
        return [partials] if isinstance(partials, Partials) else list(partials)
    except TypeError:  # an array without axes, say
        return [partials]


def counted(
    core: Core, propagation: Propagation, n: int, read: Iterable[Part], flows: Array | None
) -> tuple[Array, Array, Array]:
    """Compute the chains of each block of n samples, and log-likelihoods (n, n_root).

    A block has a row for each of `Core.pieces`. ``read`` gives passes
    of `block_step` samples. Without ``flows`` each sample counts once.
    """
    dtype, device, held = core.dtype, core.device, core.statistics
    n_row = -(-n // BLOCK) * len(core.pieces)
    out = _device.empty((n, core.layout.root_rows.size), dtype, device)
    chains = _device.zeros((n_row, held.chains.size), dtype, device)
    leaf_chains = _device.zeros((n_row, held.leaf_chains.size), dtype, device)
    space = _workspace(core)
    for part, codes, numbers in read:
        space.take(codes, numbers, None if flows is None else flows[part])
        space.gather(core, propagation, part.start, part.stop)
        out[part] = space.out[: part.stop - part.start]
        _give(space.blocks, space.pieces, (part.start, part.stop, n), chains, leaf_chains)
    return chains, leaf_chains, out


def block_step(core: Core) -> int:
    """Number of samples of a pass that ends where blocks end, or divides them: a power of two."""
    most = min(PASS, core.memory.samples(learns=True))
    return 1 << (most.bit_length() - 1)


@dataclass(slots=True)
class Workspace:
    """Arrays of passes whose blocks are gathered apart; their addresses stay, for replays.

    Each block has statistics for each piece of it (`Core.pieces`): totals of their own, of the
    chains that end in it. The chains go on from piece to piece.
    """

    codes: Array
    numbers: Array
    weights: Array
    out: Array
    blocks: list[list[Statistics]]
    pieces: Pieces
    n: int = 0  # samples of the pass

    def take(self, codes: Array, numbers: Array | None, weights: Array | None) -> None:
        """Copy the samples of a pass: no numbers are all missing, no weights are ones."""
        self.n = len(codes)
        self.codes[: self.n] = codes
        if numbers is not None:
            self.numbers[: self.n] = numbers
        if weights is None:
            self.weights.fill(1)
        else:
            self.weights[: self.n] = weights

    def gather(self, core: Core, propagation: Propagation, start: int, stop: int) -> None:
        """Run a pass over samples start to stop - 1, each block into statistics of its own."""
        n = stop - start
        codes, numbers, weights, out = (
            array if n == len(array) else array[:n]
            for array in (self.codes, self.numbers, self.weights, self.out)
        )
        own = self.blocks[: -(-n // BLOCK)]
        before, usual = start % BLOCK, propagation.usual
        if not before:
            for piece in chain.from_iterable(own):
                piece.clear()

        def call() -> None:
            run = both_ways(core, propagation, (codes, numbers), weights, out if usual else None)
            gather_blocks(core.parameters, run, own, self.pieces.ends, before)
            if not usual:
                roots = core.parameters.root_rows
                found = propagation.outputs(run.values.take(roots, axis=1))
                out[:] = as_type(found, out.dtype)

        with core.memory.opened(n, learns=True):
            if usual and n == len(self.codes):
                core.memory.replayed(("blocks", n, before), (codes,), {}, call)
            else:
                call()


def _give(
    blocks: Sequence[Sequence[Statistics]],
    pieces: Pieces,
    samples: tuple[int, int, int],
    chains: Array,
    leaf_chains: Array,
) -> None:
    """Store the chains of the blocks that samples start to stop - 1 of ``end`` finish."""
    start, stop, end = samples
    for k, block in enumerate(blocks[: -(-(stop - start) // BLOCK)]):
        to = start // BLOCK + k
        last = min((to + 1) * BLOCK, stop)
        if last % BLOCK and last != end:
            continue  # the next pass goes on with the block
        settled = pieces.settled(last % BLOCK or BLOCK)
        for row, piece in enumerate(block[:settled], to * len(pieces)):
            # Each total is 0 + chain in float64, so the type of the chains holds it.
            chains[row], leaf_chains[row] = piece.totals, piece.leaf_totals
        if last % BLOCK:
            row, piece = to * len(pieces) + settled, block[0]
            chains[row], leaf_chains[row] = piece.chains, piece.leaf_chains


def _workspace(core: Core) -> Workspace:
    """Find the workspace of a circuit; it is kept, since recorded launches use its arrays."""
    step = block_step(core)
    if core.workspace is None or len(core.workspace.codes) != step:
        shape, device = (step, core.layout.root_rows.size), core.device
        weights, out = (_device.empty(shape, core.dtype, device) for _ in range(2))
        pieces = core.pieces
        blocks = [_pieces(core.statistics, len(pieces)) for _ in range(-(-step // BLOCK))]
        core.workspace = Workspace(*core.unknown(step), weights, out, blocks, pieces)
    found: Workspace = core.workspace
    return found


def _pieces(statistics: Statistics, n: int) -> list[Statistics]:
    """Statistics of the pieces of a block: their chains are one, their totals are their own."""
    pieces = [statistics.fresh()]
    for _ in range(n - 1):
        other = copy(pieces[0])
        for name in ("totals", "leaf_totals"):
            array = getattr(other, name)
            zeros = _device.zeros(array.shape, array.dtype, _device.device_of(array))
            setattr(other, name, zeros)
        pieces.append(other)
    return pieces


def add_rows(
    statistics: Statistics, chains: Array, leaf_chains: Array, n: int, pieces: Pieces
) -> None:
    """Add the counts of the next n samples, which are on the same device, row by row."""
    n_open = n % BLOCK
    n_row = full_blocks(n) * len(pieces) + (pieces.settled(n_open) if n_open else 0)
    for k in range(n_row):
        statistics.totals += chains[k]
        statistics.leaf_totals += leaf_chains[k]
    if n_open:
        statistics.chains[:], statistics.leaf_chains[:] = chains[n_row], leaf_chains[n_row]


def _add(core: Core, one: Partials) -> None:
    arrays = (one.chains, one.leaf_chains, one.log_likelihoods, one.flows)
    if _device.device_of(one.chains) != core.device:
        arrays = tuple(_device.to_device(array, core.device) for array in arrays)
    chains, leaf_chains, out, flows = arrays
    pieces, statistics = core.pieces.of(one.n_piece) or core.pieces, core.statistics
    add_rows(statistics, chains, leaf_chains, one.n_sample, pieces)
    steps.count_samples(statistics, out, flows)
    statistics.n_sample += one.n_sample
    statistics.exponent = one.exponent


def _check_same(core: Core, one: Partials, fingerprint: str) -> None:
    """Check that partial statistics are of this circuit, as it is now."""
    held = core.statistics
    for name in ("chains", "leaf_chains", "log_likelihoods", "flows"):
        dtype = getattr(one, name).dtype
        if dtype != core.dtype:
            raise DTypeError(f"partials.{name}: got {dtype}, need {core.dtype} of this circuit")
    if one.structure != structure_of(core):
        raise StructureError(
            f"partials: {one!r} is of another graph, or of other precision: make it with a copy "
            "of this circuit"
        )
    if core.pieces.of(one.n_piece) is None:
        raise ShapeError(
            f"partials: {one!r} has {one.n_piece} rows a block, need {len(core.pieces)}, since "
            "chains of 4096 steps end within a block: make it again with this version"
        )
    widths = (one.chains.shape[1], one.leaf_chains.shape[1], one.flows.shape[1])
    need = (held.chains.size, held.leaf_chains.size, core.layout.root_rows.size)
    if widths != need or one.log_likelihoods.shape != one.flows.shape:
        raise ShapeError(f"partials: {one!r} has rows of {widths} numbers, need {need}")
    if one.parameters != fingerprint:
        raise ParameterError(
            f"partials: {one!r} was made with other parameters than this circuit has now: make it "
            "again with a copy of this circuit"
        )


def _in_turn(core: Core, given: Sequence[Partials]) -> dict[int, Partials]:
    """Check that samples are counted once; give all that wait, by their first sample."""
    held, waiting = core.statistics, dict(core.waiting)
    exponent = held.exponent if held.n_sample else next(iter((*waiting.values(), *given))).exponent
    for one in given:
        if one.exponent != exponent:
            raise ParameterError(
                f"partials: counts of exponent {exponent:g} are held, got {one.exponent:g}: take "
                "a step of learning before"
            )
        if one.first_sample in waiting:
            raise ParameterError(f"partials: {one!r} waits already: each sample counts once")
        waiting[one.first_sample] = one
    end, open_end = held.n_sample, bool(held.n_sample % BLOCK)
    for first in sorted(waiting):
        one = waiting[first]
        if first < end:
            raise ParameterError(
                f"partials: {one!r} begins before sample {end}, up to which samples are counted "
                "already: each sample counts once"
            )
        if open_end:
            raise ParameterError(
                f"partials: {one!r} follows sample {end - 1}, in the middle of a block of "
                f"{BLOCK}: only the last samples may be fewer than a multiple of {BLOCK}"
            )
        end, open_end = one.end_sample, bool(one.end_sample % BLOCK)
    return waiting


def _parameters_of(core: Core) -> str:
    """Fingerprint of the parameters, by their bits."""
    digest = hashlib.sha256()
    for array in (core.parameters.theta, core.parameters.rows.parameters):
        digest.update(np.ascontiguousarray(_device.to_numpy(array)).data)
    return digest.hexdigest()[:32]
