"""Recomputation chosen by the cycles of whole plans."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from rpukit._checks import takes
from rpukit.errors import PlanError
from rpukit.tiled.ir import Training
from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.methods.recompute import recompute
from rpukit.tiled.plan import Plan
from rpukit.tiled.planner.addresses import Block, live_bytes
from rpukit.tiled.planner.lifetimes import Lifetimes
from rpukit.tiled.planner.planner import plan

__all__ = ["plan_recomputed"]

_LOG = logging.getLogger(__name__)
_PARTS = 4  # steps from all bytes that live at once down to those of the second level
_TRIES = 8  # limits for the outermost level, each a 32nd below the one before


@takes()
def plan_recomputed(
    training: Training,
    levels: Hierarchy,
    *,
    buffering: str = "auto",
    single: Collection[str] = (),
    monotone: bool = False,
) -> tuple[Training, Plan]:
    """Plan a training, and recompute results where they do not fit or where that is faster.

    Parameters
    ----------
    training : Training
    levels : Hierarchy
    buffering, single, monotone
        As for `rpukit.tiled.plan`.

    Returns
    -------
    training : Training
        The given one, or one of `recompute`. The plan is a plan of it.
    plan : Plan

    Raises
    ------
    PlanError
        If the training does not fit whatever is recomputed.
    ParameterError

    Notes
    -----
    Where the values do not fit the outermost level, as little is recomputed as makes them fit.
    Over three levels or more, plans are made for further limits too, from the bytes that live
    at once down to those of the second level: results that are computed again need not cross
    the slowest link. Each limit is reached as by `recompute`, by the bytes saved for each
    cycle added, and the fastest plan is kept. The search ends at the first limit whose plan is
    slower. Over two levels everything that fits is kept: a result is fetched once, and
    computing it again fetches its operands. All bits are those of the given training.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("deep")
    >>> x, y = b.input("x", (64, 16)), b.input("y", (64, 16))
    >>> h = x
    >>> for k in range(6):
    ...     h = b.apply("Relu", b.apply("Gemm", h, b.parameter(f"w{k}", np.eye(16))))
    >>> training = b.training(b.apply("MSELoss", h, y))
    >>> levels = rk.tiled.siracusa_l2(l2=42_000)
    >>> small, plan = rk.tiled.methods.plan_recomputed(training, levels, buffering="double")
    >>> len(training.train.nodes), len(small.train.nodes), plan.peaks["L2"]
    (37, 41, 40976)
    """
    options: dict[str, Any] = {"buffering": buffering, "single": single, "monotone": monotone}
    made, found = _fitting(training, levels, options)
    for limit in _limits(made, levels):
        try:
            other = recompute(training, levels, limit=limit)
            faster = plan(other, levels, **options)
        except PlanError as error:
            _LOG.debug("no more is recomputed: %s", error)
            break
        if faster.cycles >= found.cycles:
            break
        made, found = other, faster
    return made, found


def _fitting(
    training: Training, levels: Hierarchy, options: dict[str, Any]
) -> tuple[Training, Plan]:
    """Plan a training, with as little recomputed as makes it fit the outermost level."""
    try:
        return training, plan(training, levels, **options)
    except PlanError as error:
        reason, limit = error, levels[0].bytes
    for _ in range(_TRIES):
        small = recompute(training, levels, limit=limit)
        try:
            if small is not training:
                return small, plan(small, levels, **options)
        except PlanError as error:
            reason = error
        limit -= limit // 32  # a plan packs values less tightly where ops are interleaved
    raise reason


def _limits(training: Training, levels: Hierarchy) -> list[int]:
    """List bytes from those that live at once down to the second level's, of three or more."""
    outer = levels[0]
    blocks = [
        Block(v.name, v.lower, v.upper, outer.rounded(v.bytes))
        for v in Lifetimes(training).values.values()
    ]
    live, second = live_bytes(blocks), levels[1].bytes
    if len(levels) < 3 or live <= second:
        return []
    return [int(live * (second / live) ** (k / _PARTS)) for k in range(1, _PARTS + 1)]
