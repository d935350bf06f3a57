"""Launch plan of the forward and backward products on a GPU.

The op is in ``ops.py``, the tiles are in ``launch_shapes.py``. A product takes these launches:

- For up to 8 samples, one launch finds the scales, converts the inputs and multiplies. For more,
  one finds scales and converts inputs, and one multiplies. Large products are summed by det_gemm,
  and one more launch makes the outputs.
- With bound management, further rounds follow. For more than 32 samples, one launch forecasts the
  round in which each sample that met the bound should pass. Another runs that round and tries the
  rounds before it; for many samples it is preceded by one for the case that few have failed. The
  samples that still did not pass take one launch for all rounds of each `_LOT` samples, or one
  launch per round.

A launch after the first may begin while the previous one ends, except those of det_gemm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import shared_limit
from rpukit._kernels import Kernel
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import keep_for_graph
from rpukit.analog.product.launch_shapes import (
    FEW,
    FLAT,
    ProductTile,
    by_gemm,
    fitted,
    foretold_tiles,
    further_tile,
    product_tile,
)
from rpukit.analog.product.replay import ProductReplay
from rpukit.gemm import real
from rpukit.gemm._tiles import real_choice, real_tiles
from rpukit.random import Op, Stream

Array = Any

_TILE_SCALE = Kernel("tile_scale")
_TILE_FORWARD = Kernel("tile_forward")
_TILE_OUTPUTS = Kernel("tile_outputs")

# Typed scalars pass a launch without a cast.
_i4, _u8, _f4 = np.int32, np.uint64, np.float32

AVERAGE = 4  # MODE of tile_scale.cu
_SEGMENT = real_tiles.LONG_SEGMENT  # RK_SEGMENT of rk_chain.cuh
_THREADS = 256  # of tile_scale.cu, for up to
_FILL = 1024  # blocks, which keep the largest GPU busy
_OUTPUT_THREADS, _OUTPUTS = 128, 512  # of a block of tile_outputs.cu
_LOT = 256  # samples whose further rounds share a launch
_FEW_TOGETHER = 32  # samples that share it whatever the number of their results
_MOST_TOGETHER = 1 << 24  # results of more samples that share it
_MOST_ROUNDS = 16
_PARTS = 4  # tiles of rows that each block takes in turn; most have nothing left to do
COUNTERS = 8  # words of a sample, see rk_lines.cuh
BY_ROUND = 64  # BY_ROUND of rk_lines.cuh
_MOST_FORETOLD = 31  # further rounds, as each is a bit of a word
_MOST_PASSED = 1 << 30  # words passed between kernels, which an int can number
_MOST_INPUTS = 1 << 26  # converted inputs that are stored for a product
_FEW_FAILED = 2  # tiles for the case that few samples failed


@dataclass(frozen=True, slots=True, eq=False)
class Manner:
    """Parameters of a product that decide its launches."""

    transposed: bool
    perfect: bool
    mode: int  # of tile_scale.cu
    worst: bool
    input_draws: bool  # whether inputs have noise or stochastic rounding
    output_draws: bool
    w_noise: int
    n_round: int
    threshold: np.float32
    step: np.float32
    max_bm_res: np.float32
    bound: np.float32

    @property
    def ops(self) -> tuple[int, int]:
        """Tags of the draws of inputs and outputs."""
        if self.transposed:
            return int(Op.BACKWARD_IN), int(Op.BACKWARD_OUT)
        return int(Op.FORWARD_IN), int(Op.FORWARD_OUT)


@dataclass(slots=True, eq=False)
class Call:
    """Arguments of one product on kernels; not frozen, as frozen ones are slow to make."""

    manner: Manner
    shape: tuple[int, int, int]  # n_batch, n_out, n_in
    weight: Array
    x: Array
    y: Array
    io: Array
    line_noise: Array | None
    average: Array
    status: Array
    call: int
    stream: Stream
    first_sample: int

    @property
    def vec(self) -> int:
        """Number of elements that can be read at a time."""
        if (self.shape[1] | self.shape[2]) % 4:
            return 1
        if _device.is_cupy(self.x):
            address = self.weight.data.ptr | self.x.data.ptr
        else:
            address = self.weight.ctypes.data | self.x.ctypes.data
        return 1 if address % 16 else 4


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One launch: everything that does not change from call to call."""

    variant: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    numbers: tuple[Any, ...]
    kernel: str = "forward"  # or "scale", "gemm", "outputs"
    early: bool = False  # whether it may begin while the previous launch ends


@dataclass(slots=True, eq=False)
class Plan:
    """Launches of a product, and the number of 4-byte elements passed between them."""

    size: int
    head: int  # elements before the converted inputs
    steps: tuple[Step, ...]
    weight: Any = None  # of the last call


def launch(call: Call, plan: Plan, device: _device.Device) -> ProductReplay | None:
    """Launch a product; return its replay if the same launches have been made before."""
    work = _device.empty((plan.size,), np.float32, device) if plan.size else None
    # Replay pays only if the weights stay in place, unlike slices.
    again = device.kind == "gpu" and plan.weight is call.weight and _device.is_current(device)
    plan.weight = call.weight
    if not again or _device.free_stream() is None:
        run(call, plan, work)
        keep_for_graph(work)
        return None
    with recording() as launches:
        run(call, plan, work)
    fixed = call.weight, call.status, call.stream
    return ProductReplay(launches, fixed, call.x, call.y, plan.size, plan.head, call.vec > 1)


def run(call: Call, plan: Plan, work: Array | None, sums: Array | None = None) -> None:
    """Launch a product; ``work`` holds the elements passed between its kernels.

    ``sums`` are those of the outputs, if they are not in the results.
    """
    head, words = (_i4(call.call), _u8(call.first_sample), call.io), call.stream.words
    passed = (call.line_noise, work, call.y, call.status, *words)
    arguments = {
        "forward": (*head, call.weight, call.x, *passed),
        "scale": (*head, call.x, work, call.average, call.status, *words),
        "outputs": (
            *(*head[1:], call.line_noise, work),
            *(call.y if sums is None else sums, *passed[2:]),
        ),
    }
    for step in plan.steps:
        rest = arguments.get(step.kernel)
        if rest is None:  # det_gemm, whose blocks do not share sums here
            rest = work[plan.head :], call.weight, call.y, None, None  # type: ignore[index]
        step.variant.launch(step.grid, step.block, (*step.numbers, *rest), step.shared, step.early)


def make_plan(
    manner: Manner, tile: ProductTile, shape: tuple[int, int, int], vec: int, limit: int
) -> Plan:
    """Plan the launches of a product of (n_batch, n_out, n_in).

    ``limit``: bytes of shared memory of a block.
    """
    n_batch, n_out, n_in = shape
    further, n_peak = manner.n_round - 1, -(-n_out // tile.peak)
    n_passed = n_batch * (COUNTERS + n_peak) + 1  # from kernel to kernel
    listed = n_batch > FLAT.samples  # the samples that fail are listed, and their inputs converted
    foretells = 0 < further < _MOST_FORETOLD and n_passed < _MOST_PASSED
    foretells = foretells and not (listed and n_batch * n_in > _MOST_INPUTS)
    lot = min(n_batch, _LOT)
    together = foretells and further < _MOST_ROUNDS and n_batch <= _LOT * max(1, further - 1)
    together = together and (lot <= _FEW_TOGETHER or lot * further * n_out <= _MOST_TOGETHER)
    alone = n_batch <= tile.samples <= FEW.samples and manner.mode < AVERAGE and not manner.worst
    alone = alone and (together or further == 0)
    # One block computes the running average; it would be too slow to convert all inputs as well.
    as_they_go = manner.mode == AVERAGE or n_batch * n_in > _MOST_INPUTS
    inputs = 2 if alone else int(as_they_go and not manner.perfect)
    head = -(-(n_passed if foretells else COUNTERS * n_batch + 1) // 4) * 4
    if alone and not together:
        head = 0
    body = lot * further * n_out if together else 0
    planner = LaunchPlanner(manner, shape, vec, limit, head, n_peak if foretells else 0, tile.peak)
    converts = inputs == 0 and not manner.perfect
    if not alone:
        body = max(body, n_batch * n_in if converts or (foretells and listed) else 0)
        own = {"CONVERT": int(converts), "VEC": vec}
        planner.steps.append(scale_step(manner, n_batch, n_in, head, own))
    if converts and manner.w_noise == 0 and by_gemm(*shape):
        planner.sum_by_gemm()
    else:
        planner.multiply(fitted(tile, limit), n_batch, inputs, 0, 0)
    planner.add_rounds(tile, foretells, listed, together)
    return Plan(head + body, head, tuple(planner.steps))


@dataclass(slots=True)
class LaunchPlanner:
    """Planner of the launches of one product."""

    manner: Manner
    shape: tuple[int, int, int]
    vec: int
    limit: int
    head: int
    n_peak: int  # 0: nothing is forecast
    peak: int
    steps: list[Step] = field(default_factory=list)

    def add_rounds(self, tile: ProductTile, foretells: bool, listed: bool, together: bool) -> None:
        """Add the rounds of bound management."""
        manner, (n_batch, n_out, n_in) = self.manner, self.shape
        lean, further = _lean(manner, n_in, self.vec), manner.n_round - 1
        if foretells and listed:
            again = {"AGAIN": 1, "CONVERT": 0, "WORST": 0, "MODE": 1}
            step = scale_step(manner, n_batch, n_in, self.head, again, self.n_peak)
            self.steps.append(step)
        spared = 0  # number of failed samples that an earlier launch takes
        soons = foretold_tiles(tile, n_batch, n_out, self.limit, lean) if foretells else ()
        for soon in soons:
            tries = soon.samples * -(-(further - 1) // soon.samples)
            few = listed and soon.samples <= FEW.samples
            rows = min(n_batch, _FEW_FAILED * soon.samples) if few else n_batch
            self.multiply(soon, rows, 1, spared, 2, tries)
            spared = rows
        if together:
            n_row = min(n_batch, _LOT) * further
            last = fitted(further_tile(n_row, lean), self.limit)
            for first in range(0, n_batch, _LOT):
                self.multiply(last, min(n_row, _PARTS * last.samples), 1, first, 1)
            return
        for number in range(1, manner.n_round):
            self.multiply(fitted(tile, self.limit), n_batch, 1, number, 0)

    def multiply(
        self, tile: ProductTile, rows: int, inputs: int, number: int, kind: int, tries: int = 0
    ) -> None:
        """Add a launch of tile_forward for some rows, with further blocks for tried rounds."""
        manner, (_, n_out, n_in) = self.manner, self.shape
        macros = {
            "TRANSPOSED": int(manner.transposed),
            "PERFECT": int(manner.perfect),
            "W_NOISE": manner.w_noise,
            "VEC": self.vec,
            "LONG": int(n_in > _SEGMENT),
            "INPUTS": inputs,
            "INPUT_DRAWS": int(manner.input_draws),
            "OUTPUT_DRAWS": int(manner.output_draws),
            "MODE": manner.mode if inputs == 2 else 1,
            "ALL": kind,
            "LOT": _LOT,
            "PEAK_N": self.peak,
            "IN_OP": manner.ops[0],
            "OUT_OP": manner.ops[1],
            "HELPERS": tile.helpers if inputs else 0,
        }
        variant = _TILE_FORWARD.variant(macros | tile.macros)
        grid = (-(-n_out // tile.outputs) + tries, -(-rows // tile.samples))
        block = (tile.threads + (tile.helpers if inputs else 0),)
        numbers = (*self.shape, self.head, number, manner.n_round, self.n_peak)
        typed = (*map(_i4, numbers), manner.threshold)
        shared, early = tile.shared(manner.transposed), bool(self.steps)
        self.steps.append(Step(variant, grid, block, shared, typed, early=early))

    def sum_by_gemm(self) -> None:
        """Add round 0 of all samples by det_gemm, which sums in the order of tile_forward."""
        (n_batch, n_out, _), manner = self.shape, self.manner
        turned, vec = not manner.transposed, self.vec
        problem = real_tiles.Problem(*self.shape, 4, False, turned, vec == 4, _SEGMENT)
        tile, _ = real_choice.pick(problem, False)
        vectors = vec, vec, 1  # results may go to any address
        start = real.start(
            tile, self.shape, 4, False, turned, vectors, self.limit, segment=_SEGMENT
        )
        typed = tuple(map(_i4, start.sizes))
        self.steps.append(
            Step(start.variant, start.grid, start.block, start.shared, typed, "gemm")
        )
        numbers = (n_batch, n_out, self.head, 0, manner.n_round, self.n_peak)
        self.steps.append(outputs_step(manner, numbers))


def outputs_step(manner: Manner, numbers: tuple[int, int, int, int, int, int]) -> Step:
    n_batch, n_out = numbers[:2]
    macros = {"OUT_OP": manner.ops[1], "OUTPUT_DRAWS": int(manner.output_draws)}
    variant, grid = _TILE_OUTPUTS.variant(macros), (n_batch * -(-n_out // _OUTPUTS),)
    typed = tuple(map(_i4, numbers))
    return Step(variant, grid, (_OUTPUT_THREADS,), 0, typed, "outputs", True)


def scale_step(
    manner: Manner, n_batch: int, n_in: int, head: int, own: dict[str, int], n_peak: int = 0
) -> Step:
    macros = {
        "MODE": manner.mode,
        "WORST": int(manner.worst),
        "INPUT_DRAWS": int(manner.input_draws),
        "OP": manner.ops[0],
        **own,
    }
    typed = map(_i4, (n_batch, n_in, head, manner.n_round, n_peak))
    numbers = (*typed, manner.threshold, manner.step, manner.max_bm_res, manner.bound)
    grid = (1 if macros["MODE"] == AVERAGE else min(n_batch, 65535),)
    again = bool(macros.get("AGAIN"))
    # Many short samples: more of their blocks run at a time.
    macros["THREADS"] = min(_THREADS, -(-n_in // 32) * 32) if n_batch > _FILL else _THREADS
    variant = _TILE_SCALE.variant(macros)
    return Step(variant, grid, (macros["THREADS"],), 0, numbers, "scale", again)


def inputs_step(manner: Manner, n_batch: int, n_in: int, head: int, number: int) -> Step:
    """Convert the inputs of the samples that wait for a round."""
    own = {"AGAIN": 2, "CONVERT": 0, "WORST": 0, "MODE": 1}
    return scale_step(manner, n_batch, n_in, head, own, number)


def launch_scales(call: Call) -> Array:
    """Launch noise management alone; return the scales for another kernel of products."""
    n_batch, _, n_in = call.shape
    head = COUNTERS * n_batch + 1
    step = scale_step(call.manner, n_batch, n_in, head, {})
    work = _device.empty((head,), np.float32, _device.device_of(call.x))
    run(call, Plan(head, head, (step,)), work)
    return work


def launch_outputs(call: Call, scales: Array) -> None:
    """Launch the output stage of a product with one round, whose sums are in its results."""
    n_batch, n_out, _ = call.shape
    step = outputs_step(call.manner, (n_batch, n_out, 0, 0, 1, 0))
    run(call, Plan(0, 0, (step,)), scales)


def plan_of(call: Call, tile: ProductTile, vec: int) -> Plan:
    """Plan the launches of a product on its device."""
    limit = shared_limit(_device.device_of(call.x))
    return make_plan(call.manner, tile, call.shape, vec, limit)


def _lean(manner: Manner, n_in: int, vec: int) -> bool:
    """Whether registers suffice for tiles in which a thread has many results."""
    return vec == 4 and manner.w_noise == 0 and n_in <= _SEGMENT


def pick(call: Call) -> ProductTile:
    """Choose the tile of samples and outputs for a product."""
    (n_batch, n_out, n_in), manner = call.shape, call.manner
    lean = n_batch > FEW.samples and _lean(manner, n_in, call.vec)
    return product_tile(n_batch, n_out, lean, manner.transposed)
