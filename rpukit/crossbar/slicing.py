"""`SlicedTile`: bits of weights in several tiles, bits of inputs one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, check_shape, instance, integer, number, one_of
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.tile.face import rows_of, with_leading
from rpukit.costs.counting import bits_of
from rpukit.costs.events import Counts, Event
from rpukit.crossbar.adc import Adc
from rpukit.errors import NonFiniteError, ParameterError, RpukitError, ShapeError
from rpukit.inference.grid.array import TileArray
from rpukit.random import Stream
from rpukit.summaries import Described, Fact, Summary, count, memory

__all__ = ["SlicedTile"]

Array = Any
_EXACT = 1 << 24  # sums of integers below this are exact in float32
_PERFECT = IOParameters(is_perfect=True)


@enters_device("_counts", "_describe")
class SlicedTile(Described):
    """A matrix with few bits of each weight in a tile, read with few bits of each input at a time.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    cell : Cell, InferenceCell or NoiseModel
        What sits at each cross-point of each slice, as of `rpukit.TileArray`.
    weight_bits : int, 2 to 24
        Of a weight, its sign included: integers within ``2**(weight_bits - 1) - 1``.
    cell_bits : int, 1 to 8
        Bits of the magnitude of a weight in one tile. A cell holds the digit with the sign of
        the weight, as a pair of devices does.
    input_bits : int, 1 to 24
        Of an input, its sign included if there is one.
    dac_bits : int, 1 to 8
        Bits of the magnitude of an input that are sent at a time.
    inputs : {"signed", "unsigned"}
        Signed inputs are sent as digits with the sign of the input. Of unsigned ones, negative
        inputs are sent as 0.
    w_max, x_max : float, positive
        Weight and input of the largest integer; what is beyond is clipped.
    cell_range : float, positive, weight units of the cell
        What a full cell (``2**cell_bits``) would hold; a power of two keeps digits exact.
    adc : Adc or sequence of Adc, optional
        Converter of the outputs, or one for each tile, in units of products of digits (see
        `full_scale`). None: those of `forward` alone.
    forward : IOParameters, optional
        Wires, noise and converters of each tile; default: perfect. Digits are sent as fractions,
        ``digit / 2**dac_bits``, so no scaling is needed (``noise_management="none"``).
    device : str
    seed : int or Stream
        Tile k draws from child k.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    ``y = w_step x_step sum_k sum_m 2**(k cell_bits + m dac_bits) adc(digits_k @ digits_m)``:
    slices of weights k and of inputs m ascending from the lowest, added in float64. With a
    perfect periphery this is the product of the quantised matrices, rounded once, as long as
    ``n_in (2**cell_bits - 1) (2**dac_bits - 1)`` is below ``2**24``. The slices of a sample are
    consecutive samples of the tiles, so results do not depend on how a batch is cut.

    Only the forward product is sliced; the tiles do not learn.

    Source: A. Shafiee et al., ISAAC, ISCA 2016; weights here have signs instead of a bias.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> tile = rk.crossbar.SlicedTile((2, 3), rk.Ideal(), weight_bits=5, cell_bits=2, dac_bits=1)
    >>> _ = tile.set_weights([[0.1, -0.5, 1.0], [0.0, 0.3, -0.2]])
    >>> tile.n_slice, tile.get_weights()[0].round(3)
    ((2, 7), array([ 0.133, -0.533,  1.   ], dtype=float32))
    """

    def __init__(
        self,
        shape: tuple[int, int],
        cell: Any,
        *,
        weight_bits: int = 8,
        cell_bits: int = 2,
        input_bits: int = 8,
        dac_bits: int = 1,
        inputs: str = "signed",
        w_max: float = 1.0,
        x_max: float = 1.0,
        cell_range: float = 1.0,
        adc: Adc | Sequence[Adc] | None = None,
        forward: IOParameters | None = None,
        device: str = "cpu",
        seed: int | Stream = 0,
    ) -> None:
        self._device, self._call_state = _device.parse_device(device), CallState()
        self.shape = check_shape(shape)
        self.inputs = one_of(inputs, "inputs", ("signed", "unsigned"))
        signed = self.inputs == "signed"
        self.weight_bits = integer(weight_bits, "weight_bits", low=2, high=24, what="bits")
        self.cell_bits = integer(cell_bits, "cell_bits", low=1, high=8, what="bits")
        self.input_bits = integer(input_bits, "input_bits", low=1 + signed, high=24, what="bits")
        self.dac_bits = integer(dac_bits, "dac_bits", low=1, high=8, what="bits")
        self.w_max, self.x_max = (
            number(v, name, low=TINY) for v, name in ((w_max, "w_max"), (x_max, "x_max"))
        )
        self.cell_range = number(cell_range, "cell_range", low=TINY)
        if self.full_scale >= _EXACT:
            raise ParameterError(
                f"shape: sums of up to {self.full_scale:,} are not exact in float32; need fewer "
                "inputs, or fewer bits a slice"
            )
        self.forward_parameters = instance(forward, IOParameters, "forward", _PERFECT)
        n_tile, _ = self.n_slice
        every = list(adc) if isinstance(adc, (list, tuple)) else [adc] * n_tile
        if len(every) != n_tile:
            raise ParameterError(f"adc: got {len(every)} converters, need {n_tile}, one a tile")
        self.adcs = [a if a is None else instance(a, Adc, "adc") for a in every]
        stream = Stream.from_seed(seed)
        options = {"forward": self.forward_parameters, "device": device, "tile_shape": None}
        self.tiles = [
            TileArray(self.shape, cell, seed=stream.child(k), **options) for k in range(n_tile)
        ]

    @property
    def n_slice(self) -> tuple[int, int]:
        """Number of tiles, and of parts of each input."""
        signed = self.inputs == "signed"
        n_tile = -(-(self.weight_bits - 1) // self.cell_bits)
        return n_tile, -(-(self.input_bits - signed) // self.dac_bits)

    @property
    def full_scale(self) -> int:
        """Largest sum of products of digits that an output can be, in units of such products."""
        return int(self.shape[1] * (2**self.cell_bits - 1) * (2**self.dac_bits - 1))

    @property
    def device(self) -> str:
        """Compute device of the tiles."""
        return str(self._device)

    @property
    def steps(self) -> tuple[float, float]:
        """Weight and input that the integer 1 stands for."""
        signed = self.inputs == "signed"
        most = 2 ** (self.weight_bits - 1) - 1, 2 ** (self.input_bits - signed) - 1
        return self.w_max / most[0], self.x_max / most[1]

    def _integers(self, values: Array, step: float, most: int, low: int) -> Array:
        """Quantise to integers, as float64."""
        xp = _device.namespace(values)
        return xp.clip(xp.rint(values.astype(np.float64) / step), low, most)

    @changes
    def set_weights(self, weight: Array) -> Self:
        """Quantise weights, and set the digits in the tiles, in place.

        Parameters
        ----------
        weight : array_like, shape (n_out, n_in)

        Returns
        -------
        SlicedTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        array = _device.as_array(weight, self._device, np.dtype(np.float32), "weight")
        if tuple(array.shape) != self.shape:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, need {self.shape}")
        xp = _device.namespace(array)
        if not bool(xp.isfinite(array).all()):
            raise NonFiniteError("weight holds NaN or infinity; the tiles are unchanged")
        most = 2 ** (self.weight_bits - 1) - 1
        whole = self._integers(array, self.steps[0], most, -most)
        scale = self.cell_range / 2**self.cell_bits
        for k, tile in enumerate(self.tiles):
            self._call_state.changing()
            tile.set_weights((_digit(whole, k, self.cell_bits) * scale).astype(np.float32))
        return self

    def get_weights(self) -> Array:
        """Add up the weights that the tiles hold now.

        Returns
        -------
        array, shape (n_out, n_in), float32
        """
        unit = 2.0**self.cell_bits / self.cell_range
        total = sum(
            tile.get_weights().astype(np.float64) * (unit * 2.0 ** (k * self.cell_bits))
            for k, tile in enumerate(self.tiles)
        )
        found: Array = total
        return (found * self.steps[0]).astype(np.float32)

    @changes
    def program(self) -> Self:
        """Write the digits into the cells, for slices of an `InferenceCell`, in place.

        Returns
        -------
        SlicedTile
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("program")

    @changes
    def drift_to(self, t: float) -> Self:
        """Set the time after programming and read the cells at that time, in place.

        Parameters
        ----------
        t : float, at least 0, seconds

        Returns
        -------
        SlicedTile
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("drift_to", t)

    def _each(self, method: str, *args: Any) -> Self:
        for k, tile in enumerate(self.tiles):
            self._call_state.changing()
            try:
                getattr(tile, method)(*args)
            except RpukitError:
                if k == 0:
                    self._call_state.unchanged()
                raise
        return self

    @changes
    def forward(self, x: Array) -> Array:
        """Multiply inputs by the weights, slice by slice.

        Parameters
        ----------
        x : array_like, shape (..., n_in)

        Returns
        -------
        array, shape (..., n_out), float32

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        rows, leading = rows_of(x, self._device, np.dtype(np.float32), self.shape[1], "x")
        xp, n_part = _device.namespace(rows), self.n_slice[1]
        signed = self.inputs == "signed"
        most = 2 ** (self.input_bits - signed) - 1
        whole = self._integers(rows, self.steps[1], most, -most if signed else 0)
        parts = [_digit(whole, m, self.dac_bits) for m in range(n_part)]
        digits = (xp.stack(parts, axis=1) * 2.0**-self.dac_bits).astype(np.float32)
        samples = digits.reshape(-1, self.shape[1])
        unit = 2.0 ** (self.cell_bits + self.dac_bits) / self.cell_range
        total = xp.zeros((len(rows), self.shape[0]), np.float64)
        for k, (tile, adc) in enumerate(zip(self.tiles, self.adcs, strict=True)):
            y = tile.forward(samples).astype(np.float64) * unit
            y = (y if adc is None else adc.convert(y)).reshape(len(rows), n_part, -1)
            for m in range(n_part):
                total += y[:, m] * 2.0 ** (k * self.cell_bits + m * self.dac_bits)
        found = (total * (self.steps[0] * self.steps[1])).astype(np.float32)
        return with_leading(found, leading)

    def _counts(self) -> Counts:
        """Count the events: those of each tile with its converters, and the shift-and-adds."""
        n_out, n_in = self.shape
        io, parts = self.forward_parameters, []
        sends = self.dac_bits + (self.inputs == "signed")
        for k, (tile, adc) in enumerate(zip(self.tiles, self.adcs, strict=True)):
            n, cells = tile.samples["forward"], n_out * n_in
            n_plane = _planes(tile)
            bits = bits_of(io.out_res, io.out_bound) if adc is None else adc.bits
            bits = 0 if adc is None and io.exact else bits
            events = [
                Event("pass", n, 1),
                Event("cell_read", n * cells * n_plane, cells),
                Event("dac", n * n_in, n_in, sends),
                Event("byte", n * n_in * -(-sends // 8) + n * n_out * -(-bits // 8), n_in + n_out),
            ]
            events += [Event("adc", n * n_out, n_out, bits)] if bits else []
            name = f"slice {k}"
            parts.append(Counts(name, {"forward": tuple(events)}, cells * n_plane))
        n = self.tiles[0].samples["forward"]
        adds = Event("add", n * len(self.tiles) * n_out, n_out)
        return Counts("SlicedTile", {"forward": (adds,)}, parts=tuple(parts))

    def _describe(self) -> Summary:
        n_out, n_in = self.shape
        n_tile, n_part = self.n_slice
        text = f"{n_out:,} outputs x {n_in:,} inputs"
        slices = f"{n_tile} tiles of {self.cell_bits} bits, {n_part} parts of {self.dac_bits} bits"
        facts = [
            Fact("shape", text, [n_out, n_in]),
            Fact("weights", f"{self.weight_bits} bits, to {self.w_max:g}", self.weight_bits),
            Fact("inputs", f"{self.input_bits} bits, {self.inputs}", self.input_bits),
            Fact("slices", slices, [n_tile, n_part]),
            Fact("converters", ", ".join(map(repr, self.adcs)), [repr(adc) for adc in self.adcs]),
            count("devices", self._counts().n_device),
            memory(sum(tile._describe()["memory"] for tile in self.tiles)),
        ]
        title = f"SlicedTile {n_out} x {n_in} over {n_tile} tiles on {self.device}"
        return Summary("SlicedTile", title, tuple(facts))

    def __repr__(self) -> str:
        n_tile, n_part = self.n_slice
        return (
            f"SlicedTile({self.shape}, {n_tile} tiles of {self.cell_bits} bits, {n_part} parts of "
            f"inputs of {self.dac_bits} bits, device={self.device!r})"
        )


def _digit(whole: Array, k: int, bits: int) -> Array:
    """Digit k of the magnitude of integers, with their sign, as float64."""
    xp = _device.namespace(whole)
    shifted = xp.floor(abs(whole) * 2.0 ** (-k * bits))
    digit = shifted - xp.floor(shifted * 2.0**-bits) * 2.0**bits
    return digit * xp.sign(whole)


def _planes(array: TileArray) -> int:
    """Number of devices at each cross-point."""
    tile = array.tiles[0][0]
    return tile.converter.n_plane if array._exact else len(tile.arrays)
