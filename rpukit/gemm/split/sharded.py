"""Linear layers whose weights are split over devices, with the bits of one device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import one_of, shown
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm.formats import TENSOR, format_of
from rpukit.gemm.logprob import BLOCK, type_of_logits
from rpukit.gemm.ops import det_gemm
from rpukit.gemm.split import checks
from rpukit.gemm.split import logprob as split_logprob
from rpukit.gemm.split.chains import STEP
from rpukit.gemm.split.collected import collected, is_large
from rpukit.gemm.split.gathered import GatheredWeight, pays
from rpukit.gemm.split.pieces import (
    at,
    chained,
    check_input,
    check_weights,
    given_pieces,
    joined,
    on,
)

Array = Any
Rows = Any  # an array, or a list of one array for each device

_AXES = {"outputs": 0, "inputs": 1}


class ShardedLinear:
    """A linear layer ``y = x W^T`` whose weight is split over devices, as tensor parallelism does.

    All results and gradients have the bits of the whole weight on one device. They depend neither
    on the number of pieces nor on where they are cut.

    Parameters
    ----------
    weights : sequence of array
        Pieces of the weight (n_out, n_in) in order, each on its device and used in place. Types
        are those of `det_gemm`.
    split : {"outputs", "inputs"}
        Which axis the pieces share: the outputs (column-parallel in the terms of Megatron-LM:
        each device has some results), or the inputs (row-parallel: each device has some terms
        of every sum).

    Attributes
    ----------
    shape : tuple of int, (n_out, n_in)
    dtype : dtype
    split : str
    weights : tuple of array
    edges : tuple of int
        Where the pieces begin, and where the last one ends.

    Raises
    ------
    ShapeError, DTypeError
    ParameterError
        If pieces of 16-bit floats are cut elsewhere than at multiples of 16, the terms that a
        tensor core adds at once.
    DeviceError
        If a device has another arithmetic for the type than the first one.

    Notes
    -----
    A sum over a split axis keeps its order: its state (one number a result, two from the end of
    the first segment on: 1024 terms, of 16-bit floats 4096) goes on from device to device.
    Results are taken in groups, so that the devices work at the same time on different groups. Of
    many rows, each device gathers whole lines of the weight instead, for some of the outputs. See
    docs/several_gpus.md.

    Inputs are on one device of the layer and are copied to the others; or they are given as a
    list with one array for each device: copies of the inputs, or with ``split="inputs"`` the
    pieces of them. Results are on the device of the inputs, of the first array of a list.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> rng = np.random.default_rng(0)
    >>> w, x = (rng.standard_normal(s).astype(np.float32) for s in ((192, 48), (5, 48)))
    >>> for split, cuts in (("outputs", (64, 128)), ("inputs", (7, 30))):
    ...     pieces = np.split(w, cuts, axis=("outputs", "inputs").index(split))
    ...     layer = rk.ShardedLinear(pieces, split=split)  # or .cut(w, ("gpu:0", "gpu:1"))
    ...     print(bool((layer.forward(x) == rk.det_gemm(x, w, trans_b=True)).all()))
    True
    True
    """

    def __init__(self, weights: Sequence[Array], *, split: str = "outputs") -> None:
        one_of(split, "split", _AXES)
        try:
            self.split, self.weights = split, tuple(weights)
        except TypeError:
            raise DTypeError(f"weights: got {shown(weights)}, need a sequence of arrays") from None
        self._axis = axis = _AXES[split]
        check_weights(self.weights, axis)
        first = self.weights[0]
        self.dtype, self._real = first.dtype, type_of_logits(first.dtype)
        self.edges = tuple(accumulate((int(w.shape[axis]) for w in self.weights), initial=0))
        whole = [int(n) for n in first.shape]
        whole[axis] = self.edges[-1]
        self.shape = (whole[0], whole[1])
        self._devices = [_device.device_of(w) for w in self.weights]
        checks.need_one_arithmetic(self.dtype, self._devices)
        if format_of(self.dtype) in TENSOR:
            why = f"{self.dtype}: a tensor core adds {STEP} terms at once"
            checks.need_edges(self.edges, STEP, split, why)

    @classmethod
    def cut(
        cls, weight: Array, devices: Sequence[str | _device.Device], *, split: str = "outputs"
    ) -> ShardedLinear:
        """Cut a weight into pieces of about one size, and copy each to its device.

        Parameters
        ----------
        weight : array, shape (n_out, n_in)
        devices : sequence of str
            Different GPUs, for example ``("gpu:0", "gpu:1")``; "cpu" may be repeated.
        split : {"outputs", "inputs"}

        Returns
        -------
        ShardedLinear
            Cut at multiples of 64, which fit all types and the blocks of `logprob`.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> rk.ShardedLinear.cut(np.zeros((192, 8), np.float32), ("cpu", "cpu")).edges
        (0, 64, 192)
        """
        one_of(split, "split", _AXES)
        places = [_device.parse_device(d) for d in devices]
        gpus = [place for place in places if place.kind == "gpu"]
        if not places or len(set(gpus)) < len(gpus):
            raise ParameterError(f"devices: got {list(map(str, places))}, need different GPUs")
        if getattr(weight, "ndim", 0) != 2:
            raise ShapeError(f"weight: got shape {getattr(weight, 'shape', ())}, need 2 axes")
        axis, pieces = _AXES[split], []
        edges = checks.even_edges(weight.shape[axis], len(places), BLOCK, split)
        for (start, stop), place in zip(pairwise(edges), places, strict=True):
            part = weight[start:stop] if axis == 0 else weight[:, start:stop]
            pieces.append(_device.to_device(part, place))
        return cls(pieces, split=split)

    @property
    def devices(self) -> tuple[str, ...]:
        """Device of each piece."""
        return tuple(map(str, self._devices))

    def __repr__(self) -> str:
        places = ", ".join(self.devices)
        return f"ShardedLinear({self.shape}, {self.dtype}, {self.split} on {places})"

    def forward(self, x: Rows, *, out_dtype: Any = None, gather: bool = True) -> Rows:
        """Multiply rows by the transposed weight: ``x W^T``.

        Parameters
        ----------
        x : array, shape (n_row, n_in), or list
            On a device of the layer; a list has one array for each piece, on its device, with
            ``split="inputs"`` the columns of x that belong to it.
        out_dtype : dtype, optional
            float32 for the unrounded results of 16-bit inputs. Default: of the weight.
        gather : bool
            False, with ``split="outputs"``: leave each piece of the result on its device.

        Returns
        -------
        array, shape (n_row, n_out), or list of array
            The bits of ``det_gemm(x, W, trans_b=True)``; a list of its columns without `gather`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError
        """
        pieces, home = self._given(x, self.shape[1], self._axis == 1, "x")
        dtype = checks.type_of_results(out_dtype, self.dtype)
        m = len(pieces[0])
        if self._axis == 1 and pays(m, self.weights):
            return GatheredWeight(self.weights, pieces).collected(m, dtype, home)
        if self._axis == 1:
            return chained(pieces, self.weights, home, self.shape[0], dtype, trans_b=True)
        if gather and is_large(m, self.shape[0], dtype):
            heads = split_logprob.heads_of(pieces, self.weights, dtype)
            return collected(heads, self.edges, self._devices, m, dtype, home)
        made = self._products(pieces, self.weights, dtype, trans_b=True)
        return joined(made, self.edges[-1], home) if gather else made

    def backward(
        self, x: Rows, dy: Rows, *, out_dtype: Any = None, gather: bool = True
    ) -> tuple[Rows, list[Array]]:
        """Compute the gradients of a loss by the inputs and by the weight.

        Parameters
        ----------
        x : array, shape (n_row, n_in), or list
            As given to `forward`.
        dy : array, shape (n_row, n_out), or list
            A list has one array for each piece, with ``split="outputs"`` the columns of dy that
            belong to it.
        out_dtype : dtype, optional
            As for `forward`, for all results.
        gather : bool
            False, with ``split="inputs"``: leave each piece of the gradient by x on its device.

        Returns
        -------
        dx : array, shape (n_row, n_in), or list of array
        dweights : list of array
            Gradient by each piece of the weight, on its device, summed over the rows in order.
            The bits are those of `det_gemm_backward`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError
        """
        rows, home = self._given(x, self.shape[1], self._axis == 1, "x")
        slopes, _ = self._given(dy, self.shape[0], self._axis == 0, "dy")
        if rows[0].shape[0] != slopes[0].shape[0]:
            raise ShapeError(
                f"dy: got {slopes[0].shape[0]} rows, need {rows[0].shape[0]} as x has"
            )
        dtype = checks.type_of_results(out_dtype, self.dtype)
        weights = self._products(slopes, rows, dtype, trans_a=True)
        if self._axis == 0:
            return chained(slopes, self.weights, home, self.shape[1], dtype), weights
        made = self._products(slopes, self.weights, dtype)
        return (joined(made, self.edges[-1], home) if gather else made), weights

    def logprob(self, hidden: Rows, targets: Array, *, with_normaliser: bool = False) -> Any:
        """Compute the log-probability of one token per row under ``softmax(hidden W^T)``.

        Parameters
        ----------
        hidden : array, shape (n_row, n_in), or list
            As given to `forward`.
        targets : array, shape (n_row,), int32 or int64
            On the device of the result. A negative one marks padding, whose log-probability is 0.
        with_normaliser : bool
            Also return the normaliser, as `linear_logprob` does.

        Returns
        -------
        logprob : array, shape (n_row,), float32, or float64 for float64
        normaliser : array, shape (n_row, 2), of that type; only with `with_normaliser`
            The bits of `linear_logprob`, whatever the split.

        Raises
        ------
        ShapeError, DTypeError, DeviceError
        ParameterError
            If the vocabulary is cut elsewhere than at multiples of 64, its blocks; or as
            `linear_logprob`.
        """
        pieces, targets, home = self._head(hidden, targets)
        made = self._rows_of_head(pieces, targets, home)
        return made if with_normaliser else made[0]

    def logprob_backward(
        self,
        hidden: Rows,
        targets: Array,
        dlogprob: Array,
        *,
        normaliser: Array | None = None,
        out_dtype: Any = None,
    ) -> tuple[Array, list[Array]]:
        """Compute the gradients of a loss by the inputs of `logprob`.

        Parameters
        ----------
        hidden, targets : array
            As given to `logprob`.
        dlogprob : array, shape (n_row,), float32, or float64 for float64
        normaliser : array, shape (n_row, 2), optional
            Result of `logprob`; if it is not given, it is recomputed.
        out_dtype : dtype, optional
            float32 for the unrounded results of 16-bit inputs. Default: of the weight.

        Returns
        -------
        dhidden : array, shape (n_row, n_in)
        dweights : list of array
            Gradient by each piece of the weight, on its device. The bits are those of
            `linear_logprob_backward`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError
        """
        pieces, targets, home = self._head(hidden, targets)
        dtype, n_row = checks.type_of_results(out_dtype, self.dtype), len(targets)
        given = split_logprob.numbers_of_rows(n_row, dlogprob, normaliser, self.dtype, home)
        slope, known = given
        if known is None:
            known = self._rows_of_head(pieces, targets, home)[1]
        numbers = (targets, slope, known)
        if self._axis == 0:
            heads = split_logprob.heads_of(pieces, self.weights, self._real)
            where = (heads, self.edges, self._devices)
            slopes = split_logprob.gradients_by_vocabulary(*where, *numbers, self.dtype)
            dhidden = chained(slopes, self.weights, home, self.shape[1], dtype)
        else:
            slopes = self._slopes(pieces, home, numbers)
            made = self._products(slopes, self.weights, dtype)
            dhidden = joined(made, self.edges[-1], home)
        return dhidden, self._products(slopes, pieces, dtype, trans_a=True)

    # ---- parts ----------------------------------------------------------------------------------

    def _rows_of_head(self, pieces: list[Array], targets: Array, home: _device.Device) -> Any:
        """Log-probabilities and normalisers."""
        rest = (targets, self.dtype, home)
        if self._axis == 0:
            heads = split_logprob.heads_of(pieces, self.weights, self._real)
            return split_logprob.by_vocabulary(heads, self.edges, self._devices, *rest)
        if pays(len(targets), self.weights):
            whole = GatheredWeight(self.weights, pieces)
            heads = whole.heads(self._real)
            made = split_logprob.by_vocabulary(heads, whole.edges, whole.devices, *rest)
            whole.finish()
            return made
        logits = self._logits(pieces, home)
        return split_logprob.by_logits(logits, targets, self.shape[0], self.dtype, home)

    def _slopes(
        self, pieces: list[Array], home: _device.Device, numbers: tuple[Array, Array, Array]
    ) -> list[Array]:
        """Compute the gradient by the logits, on each device, of a layer split by inputs."""
        if pays(len(numbers[0]), self.weights):
            whole = GatheredWeight(self.weights, pieces)
            heads = whole.heads(self._real)
            given = (heads, whole.edges, whole.devices, *numbers, self.dtype)
            return whole.everywhere(split_logprob.gradients_by_vocabulary(*given))
        of = (*numbers, self.shape[0], self.dtype)
        dz = split_logprob.gradient_of_logits(self._logits(pieces, home), home, *of)
        return [on(dz, device) for device in self._devices]

    def _logits(self, pieces: list[Array], home: _device.Device) -> split_logprob.Logits:
        """Give slices of the logits of a layer that is split by inputs."""
        real = self._real

        def logits(rows: slice, columns: slice) -> Array:
            weights = [w[columns] for w in self.weights]
            n = columns.stop - columns.start
            return chained([p[rows] for p in pieces], weights, home, n, real, trans_b=True)

        return logits

    def _products(
        self, left: Sequence[Array], right: Sequence[Array], dtype: Any, **transposed: bool
    ) -> list[Array]:
        """Multiply the factors that each device has."""
        made = []
        for a, b, device in zip(left, right, self._devices, strict=True):
            with _device.using(device):
                made.append(det_gemm(a, b, out_dtype=dtype, **transposed))
        return made

    # ---- checks ---------------------------------------------------------------------------------

    def _head(self, hidden: Rows, targets: Array) -> tuple[list[Array], Array, _device.Device]:
        if self._axis == 0:
            why = f"logprob: exponentials are added by blocks of {BLOCK}"
            checks.need_edges(self.edges, BLOCK, self.split, why)
        pieces, home = self._given(hidden, self.shape[1], self._axis == 1, "hidden")
        return pieces, split_logprob.checked(targets, len(pieces[0]), self.shape[0], home), home

    def _given(self, x: Rows, n: int, cut: bool, name: str) -> tuple[list[Array], _device.Device]:
        """Take an input: one array on each device, and the device of the results."""
        if isinstance(x, (list, tuple)):
            widths = [b - a if cut else n for a, b in pairwise(self.edges)]
            return given_pieces(x, widths, self._devices, self.dtype, name), self._devices[0]
        if not (isinstance(x, np.ndarray) or _device.is_cupy(x)):
            raise DTypeError(f"{name}: got {type(x).__name__}, need a NumPy or CuPy array")
        home = _device.device_of(x)
        if home not in self._devices:
            raise DeviceError(f"{name} is on {home}, the layer on {', '.join(self.devices)}")
        check_input(x, n, self.dtype, name)
        if not cut:
            return [on(x, device) for device in self._devices], home
        spans = zip(pairwise(self.edges), self._devices, strict=True)
        return [at(x, a, b, device) for (a, b), device in spans], home
