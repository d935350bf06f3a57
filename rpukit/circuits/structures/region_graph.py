"""Region graphs: circuits from recursive partitions of the variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product as _cartesian
from typing import Any

import numpy as np

from rpukit._checks import Many, Maybe, Whole, integer, need_nodes, shown, takes
from rpukit.circuits.graph.leaves import Leaf
from rpukit.circuits.graph.nodes import Nodes, SumNodes, inputs, product, sum
from rpukit.circuits.structures.hmm import _block_of, _leaf_of
from rpukit.errors import ParameterError, ShapeError, StructureError

__all__ = ["pd", "random_regions", "region_graph"]

Region = tuple[int, ...]
Partitions = Mapping[Region, Sequence[Sequence[Region]]]


@takes(n_nodes=Whole(1), n_roots=Whole(1), max_products=Maybe(Whole(1)), seed=Whole(0))
def region_graph(
    partitions: Partitions,
    n_nodes: int,
    leaf: Leaf | Sequence[Leaf],
    *,
    n_roots: int = 1,
    max_products: int | None = None,
    seed: int = 0,
) -> SumNodes:
    """Make the circuit of a region graph: sums for each region, products for each partition.

    Parameters
    ----------
    partitions : mapping of region to sequence of partitions
        A region is a tuple of variables, a partition a sequence of regions that make it up. A
        region that has no partition, or is no key, is a product of its variables.
    n_nodes : int
        Nodes of each region but the largest, which has ``n_roots``.
    leaf : Leaf or sequence of Leaf
    n_roots : int
    max_products : int, optional
        A block of sums of a region with more partitions picks so many of them by chance.
    seed : int
        Of what is picked.

    Returns
    -------
    SumNodes

    Raises
    ------
    StructureError
        If the parts of a region overlap or leave something out, or no region holds all others.
    ParameterError, DTypeError

    Examples
    --------
    >>> import rpukit as rk
    >>> regions = {(0, 1, 2, 3): [[(0, 1), (2, 3)], [(0,), (1, 2, 3)]], (2, 3): [[(2,), (3,)]]}
    >>> root = rk.circuits.region_graph(regions, 4, rk.circuits.Bernoulli())
    >>> rk.Circuit(root).n_variables
    4
    """
    return build_regions(
        partitions,
        n_nodes,
        _factorised(leaf, n_nodes),
        n_roots=n_roots,
        most=max_products,
        seed=seed,
    )


@takes(
    n_variables=Whole(1),
    n_partitions=Whole(1),
    n_pieces=Whole(2),
    depth=Maybe(Whole(1)),
    seed=Whole(0),
)
def random_regions(
    n_variables: int,
    *,
    n_partitions: int = 2,
    n_pieces: int = 2,
    depth: int | None = None,
    seed: int = 0,
) -> dict[Region, list[list[Region]]]:
    """Draw a random region graph: each region has several random partitions.

    Parameters
    ----------
    n_variables : int
    n_partitions : int
        Ways to split a region.
    n_pieces : int, from 2
        Parts of a partition, of any sizes; fewer where there are fewer variables.
    depth : int, optional
        Number of splits on the way down; default: until single variables.
    seed : int

    Returns
    -------
    dict
        For `region_graph`.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> regions = rk.circuits.random_regions(5, seed=1)
    >>> rk.Circuit(rk.circuits.region_graph(regions, 3, rk.circuits.Bernoulli())).n_variables
    5
    """
    n, ways, pieces = n_variables, n_partitions, n_pieces
    need_nodes(n * ways, "random_regions")
    left = n if depth is None else integer(depth, "depth", low=1)
    rng = np.random.default_rng(seed)
    made: dict[Region, list[list[Region]]] = {}
    now = [tuple(range(n))]
    while now and left:
        now, before, left = [], now, left - 1
        for region in before:
            if len(region) == 1 or region in made:
                continue
            made[region] = []
            for _ in range(ways):
                order = rng.permutation(region)
                cuts = rng.choice(len(order) - 1, min(pieces, len(order)) - 1, replace=False) + 1
                parts = [tuple(sorted(map(int, p))) for p in np.split(order, np.sort(cuts))]
                if sorted(parts) not in map(sorted, made[region]):
                    made[region].append(parts)
                    now += parts
    return made


@takes(n_nodes=Whole(1), n_splits=Whole(0), max_products=Whole(1), seed=Whole(0))
def pd(
    shape: Sequence[int],
    n_nodes: int,
    leaf: Leaf,
    *,
    split_points: Sequence[Sequence[int]] | None = None,
    n_splits: int = 2,
    max_products: int = 4,
    seed: int = 0,
) -> SumNodes:
    """Make the structure of Poon and Domingos: all axis-aligned cuts of an image, recursively.

    Parameters
    ----------
    shape : sequence of int
        Of the image or volume; variables are numbered in C order.
    n_nodes : int
        Nodes of each region.
    leaf : Leaf
    split_points : sequence of sequence of int, optional
        Where each axis may be cut. Default: ``n_splits`` evenly spaced cuts an axis.
    n_splits : int
    max_products : int
        A block of sums of a region with more products picks so many of them by chance.
    seed : int

    Returns
    -------
    SumNodes

    Raises
    ------
    ParameterError, ShapeError, DTypeError

    Notes
    -----
    Source: Poon, Domingos, "Sum-product networks: a new deep architecture", UAI 2011.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.Circuit(rk.circuits.pd((4, 4), 2, rk.circuits.Bernoulli())).n_variables
    16
    """
    partitions = boxes(shape, split_points, n_splits)
    return region_graph(partitions, n_nodes, leaf, max_products=max_products, seed=seed)


def boxes(
    shape: Sequence[int], split_points: Sequence[Sequence[int]] | None, n_splits: int
) -> Partitions:
    """List all boxes between the cuts of an image, smallest first, with their halves."""
    shape = Many(Whole(1)).take(shape, "shape")
    n_splits = min(n_splits, max(shape, default=0))
    need_nodes(math.prod(shape), "pd")
    if split_points is None:
        need_nodes(math.prod(min(n_splits, n) ** 2 // 2 + 1 for n in shape), "pd")
    else:
        split_points = [Many(Whole(0)).take(p, "split_points") for p in split_points]
    if split_points is None:
        cuts = [
            sorted({round(n * k / (n_splits + 1)) for k in range(1, n_splits + 1)}) for n in shape
        ]
    else:
        cuts = [sorted(set(points)) for points in split_points]
        if len(cuts) != len(shape):
            raise ShapeError(f"split_points: got {len(cuts)} axes, need {len(shape)}")
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    edges = [
        [0, *[c for c in axis if 0 < c < n], n]
        for axis, n in zip(cuts, numbers.shape, strict=True)
    ]
    spans = [[(a, b) for i, a in enumerate(axis) for b in axis[i + 1 :]] for axis in edges]
    every = sorted(_cartesian(*spans), key=lambda box: int(np.prod([b - a for a, b in box])))

    def region(box: Sequence[tuple[int, int]]) -> Region:
        return tuple(numbers[tuple(slice(a, b) for a, b in box)].reshape(-1).tolist())

    made: dict[Region, list[list[Region]]] = {}
    for box in every:
        made[region(box)] = [
            [region((*box[:axis], span, *box[axis + 1 :])) for span in ((low, cut), (cut, high))]
            for axis, (low, high) in enumerate(box)
            for cut in edges[axis]
            if low < cut < high
        ]
    return made


def build_regions(
    partitions: Partitions,
    n_nodes: int,
    bottom: Callable[[Region], Nodes],
    *,
    n_roots: int = 1,
    most: int | None = None,
    seed: int = 0,
) -> SumNodes:
    """Build the regions bottom-up; ``bottom`` makes those without partitions."""
    every: dict[Region, list[list[Region]]] = {}
    try:
        for region, ways in partitions.items():
            every[_sorted(region)] = [[_sorted(part) for part in way] for way in ways]
    except StructureError:
        raise
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"partitions: got {shown(partitions)}, need a dictionary of regions (tuples of "
            "variables), each with a list of partitions (lists of regions)"
        ) from None
    for ways in list(every.values()):
        for part in (part for way in ways for part in way):
            every.setdefault(part, [])
    if not every:
        raise StructureError("partitions: got none, need those of one region or more")
    order = sorted(every, key=len)
    whole, inside = order[-1], set(order[-1])
    rng, block = np.random.default_rng(seed), _block_of(n_nodes)
    made: dict[Region, Nodes] = {}
    for region in order:
        if not inside.issuperset(region) or (region != whole and len(region) == len(whole)):
            raise StructureError(f"region {region} is not a subset of the largest one, {whole}")
        products: list[Nodes] = []
        for way in every[region]:
            if sorted(v for part in way for v in part) != list(region):
                raise StructureError(f"region {region}: {way} is not a partition of it")
            products.append(product(*(made[part] for part in way)))
        if region == whole:
            return sum(*(products or [bottom(region)]), n_nodes=n_roots)
        if products:
            made[region] = _mixed(products, n_nodes, block, most or len(products), rng)
        else:
            made[region] = bottom(region)
    raise AssertionError("the largest region is the last")


def _sorted(region: Any) -> Region:
    variables = tuple(sorted(region))
    if not variables or len(set(variables)) < len(variables):
        raise StructureError(f"region {region!r}: need one or more distinct variables")
    return variables


def _factorised(leaf: Leaf | Sequence[Leaf], n_nodes: int) -> Callable[[Region], Nodes]:
    """Return a function that makes regions without partitions as sums of products of leaves."""
    block = _block_of(n_nodes)
    leaves: dict[int, Nodes] = {}

    def bottom(region: Region) -> Nodes:
        for v in region:
            if v not in leaves:
                leaves[v] = inputs(v, _leaf_of(leaf, v), n_nodes, block_size=block)
        if len(region) == 1:
            return leaves[region[0]]
        inside = product(*(leaves[v] for v in region))
        return sum(inside, n_nodes=n_nodes, block_size=block)

    return bottom


def _mixed(
    parts: list[Nodes], n_nodes: int, block: int, most: int, rng: np.random.Generator
) -> Nodes:
    """Sum over products; if they are too many, each block of sums draws some of them."""
    n_block, per_part = n_nodes // block, n_nodes // block
    if len(parts) <= most:
        return sum(*parts, n_nodes=n_nodes, block_size=block)
    mask = np.zeros((n_block, len(parts) * per_part), bool)
    for line in mask:
        for part in rng.choice(len(parts), most, replace=False):
            line[part * per_part : (part + 1) * per_part] = True
    return sum(*parts, n_nodes=n_nodes, block_size=block, edges=mask)
