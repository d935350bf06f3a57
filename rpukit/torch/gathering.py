"""Samples of all processes of a group, for tiles that are trained data-parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpukit.errors import ParameterError
from rpukit.torch._torch import torch

__all__ = ["gathered", "in_turn", "refuse_plain_ddp"]

Array = Any
Tensor = Any
_DDP: Any = torch.nn.parallel.DistributedDataParallel


def refuse_plain_ddp() -> None:
    """Raise inside the forward pass of a model that was not wrapped by `data_parallel`."""
    if getattr(_DDP, "_active_ddp_module", None) is not None:
        raise ParameterError(
            "DistributedDataParallel: it averages gradients, which tiles do not have, so that the "
            "tiles of its processes would differ; wrap the model with rk.torch.data_parallel"
        )


def in_turn(array: Any, way: str, group: Any) -> Callable[[Array], Array]:
    """Return a product of tiles that takes the numbers of this process's share of the samples.

    Process r of n takes the r-th of n equal parts. Then the clocks are behind all of them, and
    all of them count as samples of the tiles.
    """
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    product = getattr(array, way)

    def multiply(rows: Array) -> Array:
        first, n = array.clocks[way], rows.size // max(rows.shape[-1], 1)
        y = product(rows, first_sample=first + rank * n)
        for tile in array:
            if array._exact:
                tile._now[way] = first + size * n
                tile._now[f"n_{way}"] += (size - 1) * n
            else:
                tile._skipped[way] -= rank * n
                tile._clocks[way] = first + size * n
        return y

    return multiply


def gathered(samples: list[tuple[Any, ...]], name: str, group: Any) -> list[tuple[Any, ...]]:
    """Gather x, d and gradients of all processes, in the order of their ranks.

    Parameters
    ----------
    samples : list of tuple
        x, its version, d, and a gradient or None, of each backward pass.
    name : str
        Of the tiles, for the error.
    group : ProcessGroup

    Returns
    -------
    list of tuple
        The same of all processes, d and gradients over their number, as DDP averages gradients.

    Raises
    ------
    ParameterError
        If processes had other numbers of samples.
    """
    distributed = torch.distributed
    n = distributed.get_world_size(group)
    shapes = [tuple(x.shape) for x, *_ in samples]
    found: list[Any] = [None] * n
    distributed.all_gather_object(found, shapes, group=group)
    if any(other != shapes for other in found):
        raise ParameterError(
            f"{name}: processes had inputs of shapes {found}; data-parallel tiles need as many "
            "samples on each (drop_last=True)"
        )

    def whole(part: Tensor) -> Tensor:
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(n)]
        distributed.all_gather(parts, part.contiguous(), group=group)
        return torch.cat([p.reshape(-1, p.shape[-1]) for p in parts])

    out = []
    for x, _, d, grad in samples:
        rows = whole(x)
        slopes = None if grad is None else whole(grad.reshape(x.shape)) / n
        out.append((rows, rows._version, whole(d) / n, slopes))
    return out
