"""Cycle model of one op's tiles: one or two buffers, one transfer engine or one a direction.

All numbers are integers, so a schedule costs the same everywhere. The loops are those of Deeploy.
With one buffer, each tile is fetched, computed and stored in turn. With two, the next tile is
fetched and the previous one stored while this one is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Event", "TileCycles", "double_buffered", "lower_bound", "single_buffered"]


class TileCycles(NamedTuple):
    """Cycles of one tile: all its fetches, its kernel, all its stores."""

    fetch: int
    compute: int
    store: int


class Event(NamedTuple):
    """Work of one engine for one tile: requested at `issue`, done from `start` to `end`."""

    kind: str
    tile: int
    issue: int
    start: int
    end: int


def single_buffered(tiles: Sequence[TileCycles]) -> int:
    """Compute the cycles with one buffer: every fetch, kernel and store in turn.

    Parameters
    ----------
    tiles : sequence of TileCycles

    Returns
    -------
    int
    """
    return sum(map(sum, tiles))


def double_buffered(
    tiles: Sequence[TileCycles],
    *,
    duplex: bool = True,
    in_place: bool = False,
    trace: list[Event] | None = None,
) -> int:
    """Compute the cycles with two buffers.

    Parameters
    ----------
    tiles : sequence of TileCycles
    duplex : bool
        One engine for each direction; else one engine serves in order of issue.
    in_place : bool
        A result shares the buffer of an operand, so a fetch waits for the previous store.
    trace : list of Event, optional
        Filled in order of issue.

    Returns
    -------
    int
    """
    free = {"ingress": 0, "egress": 0}
    events: list[Event] = [] if trace is None else trace

    def issue(kind: str, tile: int, now: int, cycles: int) -> int:
        start = max(free[kind], now) if duplex else max(*free.values(), now)
        free[kind] = start + cycles
        events.append(Event(kind, tile, now, start, start + cycles))
        return start + cycles

    if not tiles:
        return 0
    now, stored = 0, 0
    fetched = issue("ingress", 0, 0, tiles[0].fetch)
    for i, tile in enumerate(tiles):
        now = max(now, fetched)
        if in_place:
            now = max(now, stored)
        if i + 1 < len(tiles):
            fetched = issue("ingress", i + 1, now, tiles[i + 1].fetch)
        events.append(Event("compute", i, now, now, now + tile.compute))
        now = max(now + tile.compute, stored)
        stored = issue("egress", i, now, tile.store)
    return max(now, stored)


def lower_bound(tiles: Sequence[TileCycles], *, duplex: bool = True) -> int:
    """Compute a lower bound of every schedule's cycles: the busiest engine, kernels included.

    Parameters
    ----------
    tiles : sequence of TileCycles
    duplex : bool

    Returns
    -------
    int
    """
    fetch, compute, store = (sum(tile[k] for tile in tiles) for k in range(3))
    return max(compute, fetch, store) if duplex else max(compute, fetch + store)
