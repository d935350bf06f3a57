"""Networks of analog tiles behind the estimators: layers, one step of learning, outputs.

Everything that enters a result has the same bits on every device: the tiles, tanh and the loss are
rpukit's own, and scales of data come from exact sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import CallState, changes, exclusive
from rpukit.analog import AnalogTile, Cell, IOParameters, NoiseManagement, UpdateParameters
from rpukit.elementwise import random_fill, softmax_cross_entropy, tanh
from rpukit.gemm import det_gemm
from rpukit.random import Stream

Array = Any
_READS = 1 << 47  # first sample of predictions, beyond all samples of learning
_START, _ORDER = 1 << 20, 1 << 21  # child streams of first weights, and of orders of samples


@dataclass(frozen=True, slots=True)
class Periphery:
    """What all tiles of a network have in common.

    Parameters
    ----------
    cell : Cell
    forward, backward : IOParameters
    update : UpdateParameters
    device : str
    """

    cell: Cell
    forward: IOParameters
    backward: IOParameters
    update: UpdateParameters
    device: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Columns made comparable: ``(x - centre) / width``.

    Parameters
    ----------
    centre, width : array, shape (n_column,), float64
    """

    centre: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, how: str) -> Scale:
        """Find the scale of columns: "minmax" to [-1, 1], "standard" to deviation 1, or "none"."""
        n, width = x.shape
        if how == "minmax":
            low, high = x.min(axis=0), x.max(axis=0)
            centre, spread = low / 2 + high / 2, high / 2 - low / 2
        elif how == "standard":  # exact sums, which do not depend on the processor
            unit = np.where(abs(x).max(axis=0) > 2.0**400, 2.0**600, 1.0)  # squares overflow
            x = x / unit
            centre = np.array([math.fsum(column) / n for column in x.T])
            squares = ((x[:, k] - centre[k]) ** 2 for k in range(width))
            spread = np.array([math.sqrt(math.fsum(column) / n) for column in squares])
            centre, spread = centre * unit, spread * unit
        else:
            centre, spread = np.zeros(width), np.ones(width)
        return cls(centre, np.where(spread > 0, spread, 1.0))

    def apply(self, x: np.ndarray) -> Array:
        """Scale, and round to float32."""
        with np.errstate(over="ignore"):  # the tile refuses an infinity
            return ((x - self.centre) / self.width).astype(np.float32)

    def undo(self, y: np.ndarray) -> Array:
        """Give back what was scaled, float64."""
        return y.astype(np.float64) * self.width + self.centre


class TileNetwork:
    """Tiles with tanh between them; the last input of each is a constant 1, the bias.

    Parameters
    ----------
    sizes : sequence of int
        Inputs, hidden units, outputs; without biases.
    periphery : Periphery
    seed : int
    """

    def __init__(self, sizes: list[int], periphery: Periphery, seed: int) -> None:
        self.stream = Stream.from_seed(seed)
        self.n_epoch = self.n_sample = 0
        self._device = _device.parse_device(periphery.device)
        self._call_state = CallState()
        self.tiles: list[AnalogTile] = []
        for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
            tile = AnalogTile(
                (n_out, n_in + 1),
                periphery.cell,
                forward=periphery.forward,
                backward=periphery.backward,
                update=periphery.update,
                device=periphery.device,
                seed=self.stream.child(layer),
            )
            self.tiles.append(tile)
            reach = np.float32(math.sqrt(6 / (n_in + 1 + n_out)))
            draws = random_fill(self.stream.child(_START + layer), tile.shape, "uniform")
            tile.set_weights(self.put((draws * 2 - 1) * reach))

    def put(self, array: np.ndarray) -> Array:
        """Copy an array to the device of the tiles."""
        return _device.to_device(array, _device.parse_device(self.tiles[0].device))

    @changes
    def learn(self, x: Array, target: Array, lr: float, *, classes: bool) -> Array:
        """Take one step with a mini-batch; give the loss of each sample.

        Parameters
        ----------
        x : array, shape (n_batch, n_in), float32
        target : array
            Labels, shape (n_batch,), int32, for classes; else (n_batch, n_out), float32.
        lr : float
        classes : bool
            Cross-entropy of softmax; else half the squared error.

        Returns
        -------
        array, shape (n_batch,), float32
        """
        inputs, now = [self._with_bias(x)], self.n_sample
        self._call_state.changing()
        for tile in self.tiles[:-1]:
            h = tanh(tile.forward(inputs[-1], first_sample=now))
            inputs.append(self._with_bias(h))
        out = self.tiles[-1].forward(inputs[-1], first_sample=now)
        if classes:
            loss, error = softmax_cross_entropy(out, target)
        else:
            error = out - target
            with np.errstate(over="ignore"):  # the tiles refuse an infinity
                loss = sum(error[:, k] * error[:, k] for k in range(error.shape[1])) / 2
        xp = _device.namespace(x)
        for layer in range(len(self.tiles) - 1, -1, -1):
            tile, below, above = self.tiles[layer], inputs[layer], error
            if layer:
                inner = below[:, :-1]
                slope = 1 - inner * inner
                back = tile.backward(above, first_sample=now)[:, :-1]
                error = xp.ascontiguousarray(back * slope)
            tile.update(below, above, lr, first_sample=now)
        for tile in self.tiles:
            tile.post_step()
        self.n_sample += len(x)
        return loss

    @exclusive
    def outputs(self, x: Array, *, noise: bool) -> np.ndarray:
        """Compute the outputs for all samples; row k always meets the same draws.

        Parameters
        ----------
        x : array, shape (n_sample, n_in), float32
        noise : bool
            Through the periphery of the tiles; else with their weights, exactly.

        Returns
        -------
        array, shape (n_sample, n_out), float32, on the CPU
        """
        h = x
        for layer, tile in enumerate(self.tiles):
            h = self._with_bias(h)
            h = self._read(tile, h) if noise else det_gemm(h, tile.get_weights(), trans_b=True)
            h = tanh(h) if layer + 1 < len(self.tiles) else h
        return _device.to_numpy(h)

    def _read(self, tile: AnalogTile, h: Array) -> Array:
        """Multiply with draws that no step of learning uses, and leave no trace in the tile."""
        average = NoiseManagement.AVERAGE_ABS_MAX
        if tile.forward_parameters.noise_management is average:  # it remembers its inputs
            tile = tile.copy()
        return tile.forward(h, first_sample=_READS)

    @exclusive
    def epoch(
        self, x: Array, target: Array, lr: float, batch_size: int, *, classes: bool, mixed: bool
    ) -> float:
        """Learn from all samples once, in random order if ``mixed``; give the mean loss."""
        n = len(x)
        order = np.arange(n)
        if mixed:
            draws = random_fill(self.stream.child(_ORDER + self.n_epoch), (n,), "bits")
            order = np.argsort(draws, kind="stable")
        self.n_epoch += 1
        place, losses = self.put(order), []
        for first in range(0, n, batch_size):
            part = place[first : first + batch_size]
            losses.append(self.learn(x[part], target[part], lr, classes=classes))
        return math.fsum(float(v) for loss in losses for v in _device.to_numpy(loss)) / n

    @staticmethod
    def _with_bias(h: Array) -> Array:
        xp = _device.namespace(h)
        return xp.concatenate([h, xp.ones((h.shape[0], 1), np.float32)], axis=1)
