"""`calibrate`: rates of ops and links of this machine."""

from __future__ import annotations

import json
import logging
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from rpukit import _cache, _device
from rpukit._checks import integer, takes
from rpukit._files.schema import DAMAGE
from rpukit._version import __version__
from rpukit._workers import get_num_threads
from rpukit.errors import FormatError
from rpukit.tiled import ops
from rpukit.tiled.calibration import fit, probes
from rpukit.tiled.calibration.links import cpu_link, gpu_link
from rpukit.tiled.ir import graphs_of
from rpukit.tiled.machine import MOST, Compute, Hierarchy, Level, gpu, key
from rpukit.tiled.planner.planner import plan
from rpukit.tiled.rates import Rate
from rpukit.tiled.runtime.cpu import CpuExecutor
from rpukit.tiled.runtime.executor import Executor
from rpukit.tiled.runtime.gpu import GpuExecutor

__all__ = ["Calibration", "calibrate"]

_FORMAT = ("rpukit-rates", 1)
_log = logging.getLogger("rpukit")

# Sizes of the probes: of products (rows and columns, two depths), dense networks (rows, width),
# images (samples, channels, side), analog tiles (rows, width)
_CPU: dict[str, Any] = {
    "lengths": (1, 4, 16, 64, 256),
    "depths": (16, 64),
    "dense": ((16, 16), (64, 64), (128, 256)),
    "images": ((1, 4, 8), (4, 8, 16), (4, 16, 32)),
    "analog": ((4, 16), (32, 64)),
}
_GPU: dict[str, Any] = {
    "lengths": (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 4096),
    "depths": (128, 1024),
    "dense": ((64, 64), (4096, 1024)),
    "images": ((4, 16, 16), (16, 64, 32)),
    "analog": ((16, 256), (128, 1024)),
}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured rates of a machine; a cycle is a nanosecond.

    Parameters
    ----------
    device : str
        What was measured.
    link : Level
        Rates of copies; its size is that of no memory.
    compute : Compute
        Rates of ops.
    """

    device: str
    link: Level
    compute: Compute

    def levels(self, budget: int, outer: int = 1 << 40) -> Hierarchy:
        """Make levels with these rates, to plan over.

        Parameters
        ----------
        budget : int
            Bytes of the inner level; on a GPU as in `rpukit.tiled.gpu`.
        outer : int
            Bytes of the outer level, where tensors live.

        Returns
        -------
        Hierarchy

        Raises
        ------
        ParameterError
        """
        if self.link.name == "device":
            preset = gpu(budget, outer)
            size, first = preset[1].bytes, preset[0]
        else:
            size = integer(budget, "budget", low=1, high=MOST, what="bytes")
            first = Level("memory", outer, align=self.link.align)
        return Hierarchy((first, Level(**{**asdict(self.link), "bytes": size})), self.compute)

    def to_json(self) -> str:
        """Write the rates as JSON text.

        Returns
        -------
        str
        """
        data = {"format": _FORMAT, "device": self.device, "link": asdict(self.link)}
        return json.dumps({**data, "compute": self.compute.to_dict()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read rates written by `to_json`.

        Parameters
        ----------
        text : str

        Returns
        -------
        Calibration

        Raises
        ------
        FormatError
        """
        try:
            data = json.loads(text)
            if tuple(data["format"]) != _FORMAT:
                raise FormatError(f"format: got {data['format']}, need {list(_FORMAT)}")
            link, compute = Level(**data["link"]), Compute.from_dict(data["compute"])
            return cls(str(data["device"]), link, compute)
        except FormatError:
            raise
        except DAMAGE as error:
            raise FormatError(f"not a calibration: {type(error).__name__}: {error}") from error


@takes()
def calibrate(device: str = "cpu", *, again: bool = False) -> Calibration:
    """Measure the rates of ops and copies on this machine, once.

    The cache folder keeps them for later calls and processes, by device, number of threads of a
    CPU and version of rpukit. The machine should be idle meanwhile, for some 10 seconds; where the
    kernels of a GPU are not compiled yet, for half a minute.

    Parameters
    ----------
    device : str
        "cpu", "gpu" or "gpu:1".
    again : bool
        Measure also if there are stored rates, and replace them.

    Returns
    -------
    Calibration

    Raises
    ------
    DeviceError

    Examples
    --------
    >>> import rpukit as rk
    >>> rates = rk.tiled.calibrate()  # doctest: +SKIP
    >>> plan = rk.tiled.plan(training, rates.levels(256_000))  # doctest: +SKIP
    """
    place = _device.parse_device(device)
    about = _name_of(place)
    name = "tiled_rates_" + re.sub(r"\W+", "_", f"{about} {__version__}") + ".json"
    stored = None if again else _stored(name)
    if stored is None:
        with _cache.locked(name):
            stored = None if again else _stored(name)
            if stored is None:
                stored = _measured(device, about)
                _cache.write(name, stored.to_json().encode())
    return stored


def _stored(name: str) -> Calibration | None:
    data = _cache.read(name)
    try:
        return None if data is None else Calibration.from_json(data.decode())
    except (FormatError, UnicodeDecodeError) as error:
        _log.warning("stored rates %s are measured again: %s", name, error)
        return None


def _name_of(place: _device.Device) -> str:
    """Name a device: the model of the GPU, or of the CPU."""
    if place.kind == "gpu":
        _device.gpu_count(required=True)
        properties = _device.cupy().cuda.runtime.getDeviceProperties(place.index)
        return f"{properties['name'].decode()} {place.index}"
    return f"cpu {_cpu_model()}, {get_num_threads()} threads"


def _cpu_model() -> str:
    """Name the model of the CPU, as the system does."""
    with suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split("\n")
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _measured(device: str, about: str) -> Calibration:
    on_gpu = device != "cpu"
    sizes = _GPU if on_gpu else _CPU
    link = gpu_link(_device.parse_device(device)) if on_gpu else cpu_link()
    grid = _products(device, sizes["lengths"], sizes["depths"])
    samples = [
        sample
        for make in ("dense", "images", "analog")
        for size in sizes[make]
        for sample in _samples(getattr(probes, make)(*size), device)
    ]
    found = fit.rates(samples, [Rate(op, *grid) for op in ("Gemm", "MatMul", "GemmUpdate")])
    preset = gpu(1 << 20).compute
    launch = grid[0] if not on_gpu else preset.launch
    macs = max(1, round(_fastest(found)))
    return Calibration(about, link, Compute(launch, macs, preset.ew if on_gpu else 1, found))


def _fastest(found: tuple[Rate, ...]) -> float:
    """Find the multiply-adds per cycle of the largest product."""
    rate = next(rate for rate in found if rate.op == "Gemm")
    return rate.rows[-1] * rate.columns[-1] * rate.depth / rate.cycles[-1]


def _executor(device: str, planned: Any, graphs: Any) -> Executor:
    if device == "cpu":
        return CpuExecutor(planned, graphs)
    return GpuExecutor(planned, graphs, device, captured=False)


def _levels(device: str) -> Hierarchy:
    """Make levels over which each op is one tile."""
    return gpu(1 << 36) if device != "cpu" else Hierarchy(
        (Level("memory", 1 << 40), Level("cache", 1 << 36)), Compute()
    )  # fmt: skip


def _products(device: str, lengths: tuple[int, ...], depths: tuple[int, int]) -> tuple[Any, ...]:
    """Time products by rows and columns; return the fields of a rate after the op."""
    rng, times = np.random.default_rng(0), {}
    launch = float("inf")
    for rows in lengths:
        graph = probes.products(rows, lengths, depths)
        planned = plan(graph, _levels(device), buffering="single")
        executor = _executor(device, planned, (graph,))
        for name in graph.inputs:
            part = executor.array(name)
            part[...] = rng.standard_normal(part.shape, np.float32)
        executor.run(0)
        executor.run(0)
        for tile, seconds in executor.tile_times(0):
            if tile.node == "launch":
                launch = min(launch, 1e9 * seconds)
            else:
                columns, depth = map(int, tile.node.removeprefix("product").split("x"))
                times[rows, columns, depth] = 1e9 * seconds
    rate = fit.product("Gemm", launch, lengths, lengths, times, depths)
    return rate.launch, rate.rows, rate.cycles, rate.columns, rate.depth, rate.ends


def _samples(probe: probes.Probe, device: str) -> Iterator[fit.Sample]:
    """Time the tiles of a training step."""
    training, batch = probe
    graphs = graphs_of(training)
    planned = plan(training, _levels(device), buffering="single")
    executor = _executor(device, planned, graphs)
    values = {**training.initial, **dict(zip(training.batch, batch, strict=True))}
    values[training.reset] = np.ones(1, bool)
    for k, graph in enumerate(graphs):
        for name in graph.inputs:
            if executor.has_home(name, k):
                executor.array(name, k)[...] = values.get(name, 0)
        executor.run(k)
        executor.run(k)
        nodes = {node.name: node for node in graph.nodes}
        for tile, seconds in executor.tile_times(k):
            node = nodes[tile.node]
            op = ops.find(node.op)
            assert isinstance(op, ops.Tiled)
            space = op.space(node, graph.tensors)
            points = space.macs(tile.box) or space.elements(tile.box)
            yield fit.Sample(key(node.op, space), points, 1e9 * seconds)
