"""Log-probabilities of a language-model head: product, log-softmax and selection in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import flag
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._kernels.entering import enters_arrays
from rpukit._kernels.replay import keep_for_graph
from rpukit._workers import run_rows, work_grain
from rpukit.errors import DTypeError, ParameterError, ShapeError
from rpukit.gemm.formats import arithmetic, bits
from rpukit.gemm.ops import det_gemm

Array = Any

BLOCK = 64  # logits per partial sum of exponentials; RK_BLOCK of the kernels
_MIRROR = "rpukit.gemm._mirror.logprob"
_BLOCKS, _ROWS, _GRADIENT = (Kernel(f"logprob_{part}") for part in ("blocks", "rows", "gradient"))
_SLICE = {"cpu": 1 << 22, "gpu": 1 << 26}  # bytes of logits in memory at a time
_MOST_ROWS = 4096


@enters_arrays
def linear_logprob(
    hidden: Array, weight: Array, targets: Array, *, with_normaliser: bool = False
) -> Any:
    """Compute the log-probability of one token per row under ``softmax(hidden @ weight.T)``.

    Parameters
    ----------
    hidden : array, shape (n_row, n_in)
        float32, float64, float16, ml_dtypes.bfloat16, or uint16: the bits of bfloat16.
    weight : array, shape (n_vocab, n_in), dtype of `hidden`
    targets : array, shape (n_row,), int32 or int64
        Token of each row, below n_vocab. A negative one marks padding, whose log-probability is 0.
    with_normaliser : bool
        Also return the normaliser, which `linear_logprob_backward` can reuse.

    Returns
    -------
    logprob : array, shape (n_row,), float32, or float64 for float64
    normaliser : array, shape (n_row, 2), of that type; only with `with_normaliser`
        Largest logit, and logarithm of the sum of exp(logit - largest).

    Raises
    ------
    ShapeError, DTypeError, DeviceError
    ParameterError
        If a target is out of range and the arrays are on the CPU; on a GPU its row becomes NaN.

    Notes
    -----
    Logits are those of `det_gemm`, 16-bit ones unrounded. They are computed in slices of the
    vocabulary and are never all in memory. Exponentials are added by blocks of 64 logits in a
    fixed order (docs/semantics/gemm.md), so that a row's bits do not depend on its batch, on
    slices or on the device. Kernels: kernels_cu/logprob_blocks.cu, kernels_cu/logprob_rows.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> hidden, weight = np.ones((3, 2), np.float32), np.zeros((4, 2), np.float32)
    >>> logprob = rk.linear_logprob(hidden, weight, np.array([0, 3, -1]))
    >>> np.exp(logprob).tolist()
    [0.25, 0.25, 1.0]
    """
    hidden, weight, targets = _taken(hidden, weight, targets)
    device, targets = _checked(hidden, weight, targets)
    wanted = flag(with_normaliser, "with_normaliser")
    real = type_of_logits(hidden.dtype)
    n_row, n_vocab = hidden.shape[0], weight.shape[0]
    logprob = _device.empty((n_row,), real, device)
    normaliser = _device.empty((n_row, 2), real, device)

    def logits(rows: slice, columns: slice) -> Array:
        return det_gemm(hidden[rows], weight[columns], trans_b=True, out_dtype=real)

    for rows in row_ranges(n_row):
        sums = block_sums(logits, rows, n_vocab, targets[rows], real, device)
        logprob_rows(*sums, targets[rows], n_vocab, normaliser[rows], logprob[rows])
    return (logprob, normaliser) if wanted else logprob


def block_sums(
    logits: Callable[[slice, slice], Array],
    rows: slice,
    n_vocab: int,
    targets: Array,
    real: np.dtype[Any],
    device: _device.Device,
) -> tuple[Array, Array, Array]:
    """Reduce the logits of some rows, which ``logits(rows, columns)`` gives slice by slice.

    Returns the maximum and the sum of exponentials of each block of the vocabulary, (n_row,
    n_block), and the logits of the targets, (n_row,), which are not set where no column is the
    target. The caller makes the device current.
    """
    n, n_block = rows.stop - rows.start, -(-n_vocab // BLOCK)
    peak, mass = (_device.empty((n, n_block), real, device) for _ in range(2))
    chosen = _device.empty((n,), real, device)
    for columns in slices(n, n_vocab, real, device):
        z = logits(rows, columns)
        logprob_blocks(z, targets, columns.start // BLOCK, peak, mass, chosen)
    return peak, mass, chosen


@enters_arrays
def linear_logprob_backward(
    hidden: Array,
    weight: Array,
    targets: Array,
    dlogprob: Array,
    *,
    normaliser: Array | None = None,
    out_dtype: Any = None,
) -> tuple[Array, Array]:
    """Compute the gradients of a loss by the inputs of `linear_logprob`.

    Parameters
    ----------
    hidden, weight, targets : array
        As given to `linear_logprob`.
    dlogprob : array, shape (n_row,), float32, or float64 for float64
    normaliser : array, shape (n_row, 2), optional
        Result of `linear_logprob`; if it is not given, it is recomputed with the same bits.
    out_dtype : dtype, optional
        float32 for the unrounded results of 16-bit inputs. Default: of `hidden`.

    Returns
    -------
    dhidden : array, shape (n_row, n_in)
        Its rows do not depend on the batch.
    dweight : array, shape (n_vocab, n_in)
        Summed over the rows in their order, as `det_gemm_backward` does it.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ParameterError

    Notes
    -----
    The gradient by the logits is computed as a whole, in the type of `hidden`, and multiplied by
    `det_gemm`: it takes n_row n_vocab elements of memory. Kernel: kernels_cu/logprob_gradient.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> hidden, weight = np.ones((1, 2), np.float32), np.zeros((4, 2), np.float32)
    >>> _, dweight = rk.linear_logprob_backward(
    ...     hidden, weight, np.array([2]), np.ones(1, np.float32)
    ... )
    >>> dweight[:, 0].tolist()
    [-0.25, -0.25, 0.75, -0.25]
    """
    hidden, weight, targets = _taken(hidden, weight, targets)
    dz = gradient_of_logits(hidden, weight, targets, dlogprob, normaliser)
    dhidden = det_gemm(dz, weight, out_dtype=out_dtype)
    return dhidden, det_gemm(dz, hidden, trans_a=True, out_dtype=out_dtype)


@enters_arrays
def gradient_of_logits(
    hidden: Array, weight: Array, targets: Array, dlogprob: Array, normaliser: Array | None
) -> Array:
    """Compute the gradient by the logits (n_row, n_vocab), in the type of `hidden`."""
    hidden, weight, targets = _taken(hidden, weight, targets)
    device, targets = _checked(hidden, weight, targets)
    real = type_of_logits(hidden.dtype)
    n_row, n_vocab = hidden.shape[0], weight.shape[0]
    slope = of_rows("dlogprob", dlogprob, (n_row,), real, device)
    if normaliser is None:
        normaliser = linear_logprob(hidden, weight, targets, with_normaliser=True)[1]
    normaliser = of_rows("normaliser", normaliser, (n_row, 2), real, device)
    dz = _device.empty((n_row, n_vocab), hidden.dtype, device)
    for rows in row_ranges(n_row):
        for columns in slices(rows.stop - rows.start, n_vocab, real, device):
            z = det_gemm(hidden[rows], weight[columns], trans_b=True, out_dtype=real)
            logprob_gradient(
                z, normaliser[rows], slope[rows], targets[rows], columns.start, dz[rows]
            )
    return dz


def logprob_blocks(
    z: Array, targets: Array, first: int, peak: Array, mass: Array, chosen: Array
) -> None:
    """Reduce a slice of logits (n_row, n_column), from block `first` on.

    The maximum and the sum of exponentials of each block go to `peak` and `mass` (n_row, n_block).
    The logits of targets that are in the slice go to `chosen` (n_row,).
    """
    n_row, n_column = z.shape
    if _device.runs_kernels(_device.namespace(z)):
        keep_for_graph(z, targets, peak, mass, chosen)
        warps = n_row * -(-n_column // (8 * BLOCK))
        _BLOCKS.launch(
            (-(-warps // 8),),
            (256,),
            (n_row, n_column, first, peak.shape[1], z, targets, peak, mass, chosen),
            macros={"REAL": _name(z), "TARGET": _name(targets)},
        )
    else:
        mirror = twins.mirror(_MIRROR, z.dtype).logprob_blocks
        grain = work_grain(8 * n_column)
        run_rows(mirror, n_row, first, z, targets, peak, mass, chosen, grain=grain)


def logprob_rows(
    peak: Array,
    mass: Array,
    chosen: Array,
    targets: Array,
    n_vocab: int,
    normaliser: Array,
    logprob: Array,
) -> None:
    """Compute `normaliser` (n_row, 2) and `logprob` (n_row,) from the results of the blocks."""
    n_row, n_block = peak.shape
    if _device.runs_kernels(_device.namespace(peak)):
        keep_for_graph(normaliser)
        _ROWS.launch(
            (-(-n_row // 8),),
            (256,),
            (n_row, n_block, n_vocab, peak, mass, chosen, targets, normaliser, logprob),
            macros={"REAL": _name(peak), "TARGET": _name(targets)},
        )
    else:
        mirror = twins.mirror(_MIRROR, peak.dtype).logprob_rows
        arrays = (peak, mass, chosen, targets, normaliser, logprob)
        run_rows(mirror, n_row, n_vocab, *arrays, grain=work_grain(8 * n_block))


def logprob_gradient(
    z: Array, normaliser: Array, slope: Array, targets: Array, first: int, out: Array
) -> None:
    """Write the gradient by a slice of logits (n_row, n_column) to columns `first` on of `out`."""
    n_row, n_column = z.shape
    half = out.dtype == np.float16
    words = bits(out) if out.itemsize == 2 else out
    if _device.runs_kernels(_device.namespace(z)):
        keep_for_graph(z, normaliser, slope, targets, words)
        _GRADIENT.launch(
            (-(-n_row * n_column // 256),),
            (256,),
            (n_row, n_column, first, out.shape[1], z, normaliser, slope, targets, words),
            macros={
                "REAL": _name(z),
                "RESULT": "u16" if out.itemsize == 2 else _name(z),
                "TARGET": _name(targets),
                "HALF": int(half),
            },
        )
    else:
        mirror = twins.mirror(_MIRROR, z.dtype).logprob_gradient
        arrays = (z, normaliser, slope, targets, words)
        run_rows(mirror, n_row, half, first, *arrays, grain=work_grain(4 * n_column))


def type_of_logits(dtype: Any) -> np.dtype[Any]:
    """Type of logits and log-probabilities: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _name(array: Array) -> str:
    """Name of an array's type in a kernel."""
    return {"float32": "float", "float64": "double", "int32": "int", "int64": "i64"}[
        array.dtype.name
    ]


def row_ranges(n_row: int) -> Iterator[slice]:
    """Rows that are reduced together."""
    return ranges(n_row, _MOST_ROWS)


def ranges(stop: int, step: int) -> Iterator[slice]:
    """Cut a range into steps."""
    for start in range(0, stop, step):
        yield slice(start, min(start + step, stop))


def slices(
    n_row: int, n_vocab: int, real: np.dtype[Any], device: _device.Device
) -> Iterator[slice]:
    """Slices of the vocabulary, in whole blocks, whose logits fit into the scratch memory."""
    columns = _SLICE[device.kind] // (real.itemsize * n_row)
    return ranges(n_vocab, max(columns // 256 * 256, BLOCK))


def _taken(hidden: Any, weight: Any, targets: Any) -> tuple[Array, Array, Array]:
    """Take arrays of any library; lists of tokens go where the activations are."""
    hidden = _device.any_array(hidden, weight, "hidden")
    weight = _device.any_array(weight, hidden, "weight")
    if _device.speaks_of_memory(targets) or hasattr(targets, "__array__"):
        targets = _device.any_array(targets, hidden, "targets")
    else:
        tokens = _device.listed(targets, "targets")
        targets = _device.to_device(tokens, _device.device_of(hidden))
    narrow = targets.dtype.kind in "iu" and targets.dtype.itemsize < 8
    return (
        hidden,
        weight,
        targets.astype(np.int64) if narrow and targets.dtype != np.int32 else targets,
    )


def _checked(hidden: Array, weight: Array, targets: Array) -> tuple[_device.Device, Array]:
    """Check shapes, types and targets; return the device and the targets, made contiguous."""
    _device.namespace(hidden, weight, targets)  # refuses mixed devices
    return check_rows(hidden, tuple(weight.shape), weight.dtype, targets)


def check_rows(
    hidden: Array, shape: tuple[int, ...], dtype: Any, targets: Array
) -> tuple[_device.Device, Array]:
    """Check rows and targets against a weight's shape and type; see `_checked`."""
    xp, device = _device.namespace(hidden, targets), _device.device_of(hidden)
    if hidden.dtype != dtype:
        raise DTypeError(f"got hidden {hidden.dtype} and weight {dtype}, need the same")
    if targets.dtype not in (np.int32, np.int64):
        raise DTypeError(f"targets: got {targets.dtype}, need integers up to int64")
    arithmetic(hidden.dtype, device)
    fits = hidden.ndim == len(shape) == 2 and hidden.shape[1] == shape[1]
    if not fits or shape[0] < 1 or targets.shape != hidden.shape[:1]:
        raise ShapeError(
            f"got hidden {tuple(hidden.shape)}, weight {shape} and targets "
            f"{tuple(targets.shape)}, need (n_row, n_in), (n_vocab, n_in), (n_row,)"
        )
    n_vocab = shape[0]
    looks = not _device.runs_kernels(xp)  # a kernel does not look at values: its rows become NaN
    if looks and targets.size and targets.max() >= n_vocab:
        raise ParameterError(f"targets: got {targets.max()}, need at most {n_vocab - 1}")
    return device, xp.ascontiguousarray(targets)


def of_rows(
    name: str, x: Array, shape: tuple[int, ...], real: np.dtype[Any], device: _device.Device
) -> Array:
    array = _device.as_array(x, device, real, name)
    if array.shape != shape:
        raise ShapeError(f"{name}: got {tuple(array.shape)}, need {shape}")
    return array
