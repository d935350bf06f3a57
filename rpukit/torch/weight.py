"""`AnalogWeight`: the tiles of a layer as a parameter of its model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError
from rpukit.inference.grid.array import TileArray
from rpukit.torch._torch import torch
from rpukit.torch.bridge import array_of, on_device
from rpukit.torch.gathering import gathered, in_turn

__all__ = ["AnalogWeight"]

Tensor = Any
_KINDS = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


class AnalogWeight(torch.nn.Parameter):  # type: ignore[misc]
    """The weights of a layer that are in tiles: a parameter without elements.

    It takes its place among the parameters of a model, so that groups of parameters, learning
    rates and ``requires_grad`` work as usual. Its gradient is not a tensor: it is the samples x
    and d of the backward passes since ``zero_grad``, from which the tiles are updated.

    Parameters
    ----------
    array : TileArray

    Attributes
    ----------
    kind : torch.dtype
        Type of the computations of the tiles.
    samples : list of tuple
        x, its version, d, and for learned input ranges the gradient of x, of each backward pass
        since ``zero_grad``.
    collects : bool
        Whether backward passes keep their samples: once an optimiser of ``rpukit.torch.optim``
        has the parameter.
    tally : array, shape (n_block_in, 2), int64, or None
        Outputs of training since the last step that reached their bound, and all, for input
        ranges that manage the clipping of outputs.
    group : ProcessGroup or None
        Processes whose samples the tiles learn from, see `rpukit.torch.data_parallel`.
    """

    _array: TileArray
    _group: Any
    kind: Any
    forward_product: Any
    counts: bool
    backward_product: Any
    _tile: Any
    samples: list[tuple[Tensor, int, Tensor, Tensor | None]]
    collects: bool
    tally: Any
    grad: Tensor | None

    def __new__(cls, array: TileArray, requires_grad: bool = True) -> Self:
        where = "cpu" if array.device == "cpu" else array.device.replace("gpu", "cuda")
        weight: Self = super().__new__(cls, torch.empty(0, device=where), requires_grad)
        weight._group = None
        weight.array, weight.samples, weight.collects = array, [], False
        return weight

    @property
    def array(self) -> TileArray:
        """The tiles."""
        return self._array

    @array.setter
    def array(self, array: TileArray) -> None:
        self._array = array
        self.kind = _KINDS[array.dtype]
        # What a call of a layer needs, without the properties on the way there.
        bare = array if array._bare is None else array._bare
        self.forward_product, self.backward_product = bare.forward, bare.backward
        plain = isinstance(bare, AnalogTile) and array.device != "cpu"
        self._tile = bare if plain and self._group is None else None
        kind = array.tiles[0][0].input_range if array._exact else None
        self.counts, self.tally = kind is not None and kind.manage_output_clipping, None
        if self._group is not None:
            self.forward_product = in_turn(array, "forward", self._group)
            self.backward_product = in_turn(array, "backward", self._group)

    def repeated(self, way: str, v: Tensor) -> Tensor | None:
        """Repeat a product of one tile on a GPU from tensor to tensor, without arrays.

        Parameters
        ----------
        way : {"forward", "backward"}
        v : Tensor, shape (..., n_given), type of the tiles
            On PyTorch's current stream.

        Returns
        -------
        Tensor, shape (..., n_made), or None
            None where no such launches are known: the first products of a shape, several tiles, or
            a graph that is being captured.
        """
        if self._tile is None or not v.is_contiguous():
            return None
        n_made, n_given = self._tile.shape
        if way == "backward":
            n_made, n_given = n_given, n_made
        shape = v.shape
        if shape[-1:] != (n_given,):
            return None
        y = v.new_empty((*shape[:-1], n_made))
        rows = shape if len(shape) == 2 else (v.numel() // n_given, n_given)
        return y if self._tile._repeat(way, rows, v.data_ptr(), y.data_ptr()) else None

    @property
    def group(self) -> Any:
        """Processes that train the tiles together, or None."""
        return self._group

    @group.setter
    def group(self, group: Any) -> None:
        self._group = group
        self.array = self._array

    def __repr__(self) -> str:
        return f"AnalogWeight({self.array!r})"

    def _counted_product(self, x: Any) -> Any:
        """Multiply rows of a mini-batch, and count the outputs that reach their bound."""
        if not self.counts:
            return self.forward_product(x)
        if self.tally is None:
            xp, n = _device.namespace(x), self.array.grid[1]
            self.tally = xp.zeros((n, 2), np.int64)
        return self.array._counted(x, self.tally)

    def keep(self, x: Tensor, d: Tensor, grad: Tensor | None = None) -> None:
        """Keep the samples of a backward pass for `learn`.

        Parameters
        ----------
        x : Tensor, shape (..., n_in)
        d : Tensor, shape (..., n_out)
        grad : Tensor, shape of `x`, optional
            Gradient that the tiles gave for x, for learned input ranges.
        """
        if not (self.collects and self.requires_grad):
            return
        if self.grad is None:  # after zero_grad of a model or of an optimiser
            self.samples.clear()
            self.grad = torch.empty_like(self)
        self.samples.append((x, x._version, d, grad))

    def learn(self, lr: float) -> None:
        """Update the tiles from the samples since ``zero_grad``, in the order of their passes.

        Parameters
        ----------
        lr : float

        Raises
        ------
        ParameterError
            If an input was changed in place after its backward pass.
        NonFiniteError
        """
        if self._group is None and not self.pending:
            return
        for x, version, _, _ in self.samples:
            if x._version != version:
                raise ParameterError(
                    "x: an input of an analog layer was changed in place between its backward "
                    "pass and the step; give the layer a tensor of its own: x.clone()"
                )
        samples = self.samples if self.pending else []
        if self._group is not None:
            samples = gathered(samples, repr(self.array), self._group)
        n_in, n_out = self.array.shape[1], self.array.shape[0]
        size = sum(d.numel() // n_out for _, _, d, _ in samples)
        with on_device(self):
            last = len(samples) - 1
            for k, (x, _, d, grad) in enumerate(samples):
                rows_x, rows_d = array_of(x).reshape(-1, n_in), array_of(d).reshape(-1, n_out)
                self.array.update(rows_x, rows_d, lr, batch_size=max(size, 1))
                if grad is not None:
                    slopes, tally = array_of(grad).reshape(-1, n_in), self.tally
                    given = {"tally": tally} if k == last else {}
                    self.array.learn_range(rows_x, slopes, lr, **given)
        self.tally = None

    @property
    def pending(self) -> bool:
        """Whether there are samples since ``zero_grad``."""
        return self.grad is not None and bool(self.samples)

    def __deepcopy__(self, memo: dict[int, Any]) -> AnalogWeight:
        if id(self) not in memo:
            with on_device(self):
                memo[id(self)] = AnalogWeight(self.array.copy(), self.requires_grad)
        found: AnalogWeight = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return AnalogWeight, (self.array, self.requires_grad)
