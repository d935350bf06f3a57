"""Circuits of `HMM` for sequences of several lengths, without steps that pad.

A circuit has a chain for the longest of some sequences, and a root where each length begins: a
sequence stands at the end of the chain, and only what is below its root enters its likelihood and
its counts. The sums that begin a sequence share their weights, as the transitions do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits import Circuit, InputNodes, Leaf, Nodes, Rule, SumNodes, inputs, product
from rpukit.circuits import sum as mixture_of
from rpukit.circuits.structures.hmm import _block_of
from rpukit.errors import ParameterError, ShapeError

__all__ = ["Bucket", "Chains", "Counts", "check_lengths"]

Array = Any

_SHORTEST = 0.75  # of the longest sequence, in one circuit
_MOST_ROOTS = 64
_MOST_VALUES = 1 << 22  # of nodes in one pass
_KEPT = 32  # circuits that an estimator keeps
BEST = Rule(exponent=np.inf)


@dataclass(slots=True)
class Counts:
    """Expected counts of all sequences, float64."""

    start: Array  # (n_components,)
    transition: Array  # (n_components, n_components)
    leaves: list[Array]  # of each leaf of a time, (n_components, n_statistics + 1)


@dataclass(slots=True)
class Bucket:
    """A circuit for sequences of some lengths."""

    circuit: Circuit
    roots: dict[int, int]  # length -> number of its root
    start: SumNodes
    transition: SumNodes | None  # None if all lengths are 1
    leaves: list[InputNodes]  # of a time, with the parameters
    steps: list[InputNodes]  # the first leaves of each time

    @property
    def longest(self) -> int:
        """Number of times."""
        return len(self.steps)

    def put(self, start: Array, transition: Array, leaves: list[Array]) -> None:
        """Set the parameters, which are checked."""
        core, n = self.circuit._core, self.leaves[0].n_node
        with _device.using(core.device):
            tiles = (start / start.sum()).reshape(-1, 1, self.start.child_block_size)
            core.parameters.put(self.start, tiles)
            if self.transition is not None:
                block = self.transition.block_size
                rows = (transition / transition.sum(axis=1, keepdims=True)).reshape(
                    n // block, block, n // block, block
                )
                core.parameters.put(self.transition, rows.swapaxes(1, 2).reshape(-1, block, block))
            for nodes, parameters in zip(self.leaves, leaves, strict=True):
                core.parameters.put(nodes, parameters)

    def statistics(self) -> Counts:
        """Read the counts and clear them; those of Gaussians are about their means."""
        pc, n = self.circuit, self.leaves[0].n_node
        start = pc.parameter_flows(self.start).reshape(n)
        transition = np.zeros((n, n))
        if self.transition is not None:
            block = self.transition.block_size
            tiles = pc.parameter_flows(self.transition).reshape(
                n // block, n // block, block, block
            )
            transition = tiles.swapaxes(1, 2).reshape(n, n)
        held, found = pc._core.statistics, []
        for at in self._places():
            flow = held.leaf_totals[at] + held.leaf_chains[at]
            found.append(_device.to_numpy(flow).reshape(n, -1))
        held.clear()
        return Counts(start, transition, found)

    def maximised(self, counts: list[Array]) -> list[Array]:
        """Take the circuit's own step of EM by counts of leaves; give their parameters."""
        held = self.circuit._core.statistics
        for at, count in zip(self._places(), counts, strict=True):
            held.leaf_totals[at] = _device.to_device(
                count.reshape(-1), _device.parse_device(self.circuit.device)
            )
        held.resume(1, 1.0)
        self.circuit.em_step()
        return [self.circuit.parameters(nodes) for nodes in self.leaves]

    def _places(self) -> list[slice]:
        by_owner = {
            source.nodes: source.statistic for source in self.circuit._core.parameters.sources
        }
        return [by_owner[nodes] for nodes in self.leaves]


def make_bucket(
    lengths: tuple[int, ...], n_components: int, leaves: tuple[Leaf, ...], dtype: Any, device: str
) -> Bucket:
    """Build the circuit for sequences of these lengths."""
    block, longest = _block_of(n_components), max(lengths)
    *places, n_column = np.cumsum([0, *(leaf.n_columns for leaf in leaves)]).tolist()
    first = [
        inputs((longest - 1) * n_column + k, leaf, n_components, block_size=block)
        for k, leaf in zip(places, leaves, strict=True)
    ]

    def emitted(time: int) -> list[InputNodes]:
        if time == longest - 1:
            return first
        return [
            nodes.duplicate(time * n_column + k) for k, nodes in zip(places, first, strict=True)
        ]

    steps: list[InputNodes] = []
    roots: dict[int, SumNodes] = {}
    start: SumNodes | None = None
    transition: SumNodes | None = None
    state: Nodes | None = None
    for time in range(longest - 1, -1, -1):
        parts: list[Nodes] = list(emitted(time))
        steps.append(parts[0])  # type: ignore[arg-type]
        if state is not None:
            if transition is None:
                transition = mixture_of(state, n_nodes=n_components, block_size=block)
                parts.append(transition)
            else:
                parts.append(transition.duplicate(state))
        state = parts[0] if len(parts) == 1 else product(*parts)
        if longest - time in lengths:
            root = mixture_of(state, n_nodes=1) if start is None else start.duplicate(state)
            start = root if start is None else start
            roots[longest - time] = root
    assert start is not None
    circuit = Circuit(list(roots.values()), dtype=dtype, device=device)
    numbers = {length: k for k, length in enumerate(roots)}
    return Bucket(circuit, numbers, start, transition, first, steps[::-1])


def check_lengths(lengths: Any, n_sample: int) -> Array:
    """Check the lengths of sequences whose samples stand one after another."""
    if lengths is None:
        return np.array([n_sample])
    array = np.atleast_1d(np.asarray(lengths))
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size or array.min() < 1:
        raise ParameterError(f"lengths: got {lengths!r}, need integers from 1, one a sequence")
    if int(array.sum()) != n_sample:
        raise ShapeError(
            f"lengths: got a sum of {int(array.sum())}, need {n_sample}, the rows of X"
        )
    return array.astype(np.int64)


def _buckets(lengths: Array, most_roots: int) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Group sequences of similar lengths; give the lengths and the numbers of the sequences."""
    group: list[int] = []
    for length in (*np.unique(lengths)[::-1].tolist(), 0):
        if group and (length < _SHORTEST * group[0] or len(group) == most_roots):
            yield tuple(group), np.flatnonzero((lengths <= group[0]) & (lengths >= group[-1]))
            group = []
        group.append(length)


class Chains:
    """The sequences of one call, in circuits that hold given parameters.

    Parameters
    ----------
    x : array, shape (n_samples, n_columns)
        NaN is missing.
    lengths : array of int
    leaves : tuple of Leaf
        Of the columns of a time, one after another.
    n_components : int
    dtype : dtype
    device : str
    kept : dict
        Circuits of earlier calls, to which new ones are added.
    """

    def __init__(
        self,
        x: Array,
        lengths: Array,
        leaves: tuple[Leaf, ...],
        n_components: int,
        dtype: Any,
        device: str,
        kept: dict[Any, Bucket],
    ) -> None:
        self.x, self.lengths, self.first = x, lengths, np.cumsum(lengths) - lengths
        self.n_components, self.device = n_components, device
        # Circuits of one root scale the flows of float32, which long sequences need.
        most_roots = _MOST_ROOTS if np.dtype(dtype) == np.float64 else 1
        self.groups: list[tuple[Bucket, Array]] = []
        for some, members in _buckets(lengths, most_roots):
            key = (some, n_components, leaves, np.dtype(dtype), device)
            if key not in kept:
                if len(kept) >= _KEPT:
                    del kept[next(iter(kept))]
                kept[key] = make_bucket(some, n_components, leaves, dtype, device)
            self.groups.append((kept[key], members))

    def put(self, start: Array, transition: Array, leaves: list[Array]) -> None:
        """Set the parameters of all circuits."""
        for bucket, _ in self.groups:
            bucket.put(start, transition, leaves)

    def log_likelihoods(self, rule: Rule | None = None) -> Array:
        """Compute the log-likelihood of each sequence, float64."""
        out = np.empty(len(self.lengths))
        for bucket, members, x, _ in self._passes():
            found = _device.to_numpy(bucket.circuit.log_likelihood(x, rule=rule))
            out[members] = self._own(bucket, members, found)
        return out

    def flows(self, rule: Rule | None = None) -> Array:
        """Compute the probability of each state at each time, (n_samples, n_components)."""
        out = np.empty((len(self.x), self.n_components))
        for bucket, members, x, weights in self._passes():
            flows = bucket.circuit.flows(x, weights=weights, rule=rule)
            xp = _device.namespace(weights)
            found = _device.to_numpy(xp.stack([flows[step] for step in bucket.steps], axis=1))
            for line, member in zip(found, members, strict=True):
                first, n = self.first[member], self.lengths[member]
                out[first : first + n] = line[bucket.longest - n :]
        return out

    def counts(self) -> tuple[Counts, Array]:
        """Compute the expected counts and the log-likelihood of each sequence."""
        out, every = np.empty(len(self.lengths)), []
        for bucket, members in self.groups:
            bucket.circuit._core.statistics.clear()  # of a call that was cut short
            for _, some, x, weights in self._passes([(bucket, members)]):
                found = _device.to_numpy(bucket.circuit.accumulate(x, weights=weights))
                out[some] = self._own(bucket, some, found)
            every.append(bucket.statistics())
        total = every[0]
        for more in every[1:]:
            total.start = total.start + more.start
            total.transition = total.transition + more.transition
            total.leaves = [a + b for a, b in zip(total.leaves, more.leaves, strict=True)]
        return total, out

    def _own(self, bucket: Bucket, members: Array, found: Array) -> Array:
        """Select the value of each sequence's root."""
        if found.ndim == 1:
            return found
        return found[np.arange(len(members)), self._roots(bucket, members)]

    def _roots(self, bucket: Bucket, members: Array) -> Array:
        return np.array([bucket.roots[int(n)] for n in self.lengths[members]])

    def _passes(
        self, groups: list[tuple[Bucket, Array]] | None = None
    ) -> Iterator[tuple[Bucket, Array, Array, Array]]:
        """Cut sequences into passes: circuit, their numbers, samples, weights of the roots."""
        place = _device.parse_device(self.device)
        for bucket, members in self.groups if groups is None else groups:
            step = max(1, _MOST_VALUES // bucket.circuit.layout.n_row)
            for begin in range(0, len(members), step):
                some = members[begin : begin + step]
                weights = np.zeros((len(some), len(bucket.roots)), bucket.circuit.dtype)
                weights[np.arange(len(some)), self._roots(bucket, some)] = 1
                x = _device.to_device(self._padded(some, bucket.longest), place)
                yield bucket, some, x, _device.to_device(weights, place)

    def _padded(self, members: Array, longest: int) -> Array:
        """Put sequences at the ends of lines of NaN, which no root of theirs depends on."""
        n_column = self.x.shape[1]
        out = np.full((len(members), longest * n_column), np.nan)
        for line, member in zip(out, members, strict=True):
            first, n = self.first[member], self.lengths[member]
            line[(longest - n) * n_column :] = self.x[first : first + n].reshape(-1)
        return out
