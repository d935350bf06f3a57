"""How a product is dealt out to a GPU: tiles of samples and outputs, and which of them to take.

All tiles give the same bits; the op is in ``forward.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel, tune
from rpukit.random import Stream

Array = Any

_TILE_FORWARD = Kernel("tile_forward")

# Typed scalars pass a launch without a cast.
_i4, _u4, _u8, _f4 = np.int32, np.uint32, np.uint64, np.float32


@dataclass(frozen=True, slots=True)
class ProductTile:
    """Samples, outputs and inputs that a block works on at a time: a candidate of the tuner."""

    name: str
    samples: int
    outputs: int
    depth: int
    samples_per_thread: int
    outputs_per_thread: int

    def valid(self, n_batch: int) -> bool:
        return n_batch > 0

    @property
    def macros(self) -> dict[str, int]:
        return {
            "TILE_M": self.samples,
            "TILE_N": self.outputs,
            "TILE_K": self.depth,
            "RM": self.samples_per_thread,
            "RN": self.outputs_per_thread,
        }

    @property
    def threads(self) -> int:
        return self.samples // self.samples_per_thread * (self.outputs // self.outputs_per_thread)


# All with the same bits. The first two need few registers and take any call; the others read four
# elements at a time, and keep one segment of the chain.
MEDIUM = ProductTile("medium", 32, 32, 32, 2, 2)
SMALL = ProductTile("small", 8, 32, 128, 1, 1)
WIDE = ProductTile("wide", 16, 64, 64, 2, 2)
LARGE = ProductTile("large", 64, 128, 16, 8, 4)
TILES = (MEDIUM, SMALL, WIDE, LARGE)
_SEGMENT = 16384  # RK_SEGMENT of rk_chain.cuh
_FILLS_A_GPU = 100  # blocks that keep most of a large GPU busy


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one product on kernels."""

    weight: Array
    x: Array
    alpha: Array
    need: Array
    y: Array
    io: Array
    line_noise: Array | None
    worst: bool
    status: Array
    stream: Stream
    first_sample: int
    ops: tuple[int, int]
    transposed: bool
    perfect: bool
    w_noise: int

    @property
    def long(self) -> bool:
        """Whether the chain has more than one segment."""
        return bool(self.x.shape[1] > _SEGMENT)

    @property
    def vec(self) -> int:
        """Elements that can be read at a time."""
        return 4 if self.x.shape[1] % 4 == 0 and self.y.shape[1] % 4 == 0 else 1


def launcher(call: Call, tile: ProductTile) -> tuple[Any, ProductTile]:
    how = (call.transposed, call.perfect, call.w_noise, call.vec, call.long)
    return _variant(tile, *how), tile


@cache
def _variant(
    tile: ProductTile, transposed: bool, perfect: bool, w_noise: int, vec: int, long: bool
) -> Any:
    """Set the macros once; a steady call costs one look-up."""
    macros = {"TRANSPOSED": int(transposed), "PERFECT": int(perfect), "W_NOISE": w_noise}
    macros |= {"VEC": vec, "LONG": int(long)}
    return _TILE_FORWARD.variant(macros | tile.macros)


def launch(call: Call, variant: Any, tile: ProductTile, rhos: Sequence[float]) -> None:
    """Launch the rounds of a product, one for each reduction of the inputs."""
    (n_batch, n_in), n_out = call.x.shape, call.y.shape[1]
    grid = (-(-n_out // tile.outputs), -(-n_batch // tile.samples))
    sizes = (_i4(n_batch), _i4(n_out), _i4(n_in))
    rest = (
        _u8(call.first_sample),
        *_typed_ops(call.ops),
        call.io,
        call.weight,
        call.x,
        call.alpha,
        call.line_noise,
        call.need,
        call.y,
        call.status,
        *call.stream.words,
    )
    for numbers in _rounds(tuple(rhos), call.worst):
        variant.launch(grid, (tile.threads,), (*sizes, *numbers, *rest))


@cache
def _typed_ops(ops: tuple[int, int]) -> tuple[np.uint32, np.uint32]:
    return _u4(ops[0]), _u4(ops[1])


@cache
def _rounds(rhos: tuple[float, ...], worst: bool) -> tuple[tuple[Any, ...], ...]:
    """Number, reduction and kind of scale of each round, as kernels take them."""
    return tuple(
        (_i4(number), _f4(rho), _i4(worst and number > 0)) for number, rho in enumerate(rhos)
    )


def pick(call: Call) -> ProductTile:
    """Choose a tile: the static rule's where nothing is known, else the fastest."""
    (n_batch, n_in), n_out = call.x.shape, call.y.shape[1]
    lean = call.vec == 4 and call.w_noise == 0 and not call.long  # else registers run out
    tiles = TILES if lean else TILES[:2]
    plain = _plain_tile(n_batch, n_out)
    plain = plain if plain in tiles else MEDIUM
    key = (n_out, n_in, call.transposed, call.perfect, call.w_noise)
    picked: ProductTile = tune.choose(
        _TILE_FORWARD,
        key,
        [plain, *(t for t in tiles if t != plain)],
        lambda: _trial(call),
        n_batch=n_batch,
        device=_device.device_of(call.weight),
    )
    return picked


def _plain_tile(n_batch: int, n_out: int) -> ProductTile:
    """Largest tile that still gives the GPU enough blocks."""
    if n_batch <= SMALL.samples:
        return SMALL
    n_large = -(-n_batch // LARGE.samples) * -(-n_out // LARGE.outputs)
    return LARGE if n_large >= _FILLS_A_GPU else MEDIUM


def _trial(call: Call) -> tune.Trial:
    """Run tiles on as many samples as the scratch may hold."""
    n_out, xp = call.y.shape[1], _device.namespace(call.x)
    n = max(1, min(call.x.shape[0], tune.SCRATCH_LIMIT // 2 // (4 * n_out)))
    scratch = replace(
        call,
        x=call.x[:n],
        y=xp.empty((n, n_out), np.float32),
        alpha=call.alpha[:, :n].copy(),
        need=xp.zeros(n, np.int32),
        status=xp.zeros_like(call.status),
    )

    def run(tile: ProductTile) -> list[Array]:
        launch(scratch, *launcher(scratch, tile), (1.0,))
        return [scratch.y]

    return run
