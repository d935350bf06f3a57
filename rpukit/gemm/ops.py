"""Batch-invariant matrix products and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import any_type, flag
from rpukit._kernels.entering import enters_arrays
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import graph_may_allocate
from rpukit.errors import DTypeError, ShapeError
from rpukit.gemm import _replays, real, tensor
from rpukit.gemm.formats import TENSOR, arithmetic, format_of

Array = Any


def det_gemm(
    a: Array,
    b: Array,
    *,
    out: Array | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
) -> Array:
    """Multiply two matrices, batch-invariantly and deterministically.

    Parameters
    ----------
    a : array_like, shape (m, k), (k, m) with `trans_a`, or (..., k)
        float32, float64, float16, ml_dtypes.bfloat16, or uint16: the bits of bfloat16 (see
        `to_bfloat16`). NumPy or CuPy, any strides; other arrays by DLPack or the CUDA array
        interface; lists, with the type of the other factor.
    b : array_like, shape (k, n), or (n, k) with `trans_b`, dtype of `a`
    out : array, shape (m, n), C-contiguous, dtype of `a`, or float32 for 16-bit inputs; optional
        Where the result goes; it may not overlap the inputs.
    trans_a, trans_b : bool
        Use the transpose of the factor.
    out_dtype : dtype, optional
        float32 for the unrounded result of 16-bit inputs. Default: of `out`, else of `a`.

    Returns
    -------
    array, shape (m, n), or (..., n), dtype of `a` or `out_dtype`

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Notes
    -----
    float32 and float64: chains of fused multiply-adds, k ascending, restarted at every multiple
    of 1024. 16-bit floats: chains of steps of 16 on the tensor core, accumulated in float32,
    restarted at every multiple of 4096, rounded once at the end. The results of chains are added
    left to right. So a row of the result depends on that row of `a` alone: its bits are the same
    in any batch, for any tile, layout and stream, on CPU and GPU (of one `arithmetic`). Kernels:
    kernels_cu/det_gemm.cu, kernels_cu/det_gemm_tensor.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> a = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    >>> b = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    >>> bool((rk.det_gemm(a, b)[2:3] == rk.det_gemm(a[2:3], b)).all())
    True
    >>> rk.det_gemm(a.astype(np.float16), b.astype(np.float16)).dtype
    dtype('float16')
    """
    kind = a.__class__
    alike = b.__class__ is kind and (out is None or (out_dtype is None and out.__class__ is kind))
    if alike and kind in _replays.classes:
        made = _replays.run(a, b, out, trans_a, trans_b, out_dtype)
        if made is not None:
            return made
    repeats = alike and kind is _device.cupy_array_class()
    a = _device.any_array(a, b, "a")
    b = _device.any_array(b, a, "b")
    if a.ndim not in (0, 2) and b.ndim == 2 and not trans_a:
        return _of_more_axes(a, b, out, trans_b, out_dtype)
    m, n, k = _sizes(a, b, trans_a, trans_b)
    _device.namespace(a, b, out)  # refuses mixed devices
    device = _device.device_of(a)
    is_tensor = _check_types(a, b, device)
    with _device.using(device), graph_may_allocate(device):
        out = _result(a, b, out, (m, n), out_dtype, is_tensor, device)
        if 0 in (m, n, k):
            out.fill(0)
        elif not repeats:
            _multiply(a, b, out, trans_a, trans_b, is_tensor)
        else:
            with recording() as launches:
                whole = _multiply(a, b, out, trans_a, trans_b, is_tensor)
            if whole:
                _replays.keep(launches, a, b, out, trans_a, trans_b, out_dtype)
    return out


def _multiply(
    a: Array, b: Array, out: Array, trans_a: bool, trans_b: bool, on_tensor: bool
) -> bool:
    """Multiply into `out`; tell whether the kernels' launches are all that this took.

    CuPy copies a factor without contiguous rows. Tensor maps hide where such a copy lies.
    """
    if not on_tensor:
        real.product(a, b, out, trans_a, trans_b)
        return True  # its copies are arguments of the launch
    p, q = tensor.in_place(a, 0 if trans_a else 1), tensor.in_place(b, 1 if trans_b else 0)
    tensor.product(p, q, out)
    address = _device.address
    return address(p.words) == address(a) and address(q.words) == address(b)


def _of_more_axes(a: Array, b: Array, out: Array | None, trans_b: bool, out_dtype: Any) -> Array:
    """Multiply vectors, or rows with several leading axes, as one matrix of rows."""
    shape = (*a.shape[:-1], b.shape[0 if trans_b else 1])
    rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    into = None
    if out is not None:
        if getattr(out, "shape", None) != shape or not out.flags.c_contiguous:
            raise ShapeError(f"out: got {getattr(out, 'shape', out)}, need C-contiguous {shape}")
        into = out.reshape(len(rows), shape[-1])
    made = det_gemm(rows, b, out=into, trans_b=trans_b, out_dtype=out_dtype)
    return made.reshape(shape) if out is None else out


@enters_arrays
def det_gemm_backward(
    a: Array,
    b: Array,
    dc: Array,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
) -> tuple[Array, Array]:
    """Compute the gradients of a loss by both factors of `det_gemm`.

    Parameters
    ----------
    a, b : array_like
        As given to `det_gemm`.
    dc : array_like, shape (m, n), or (..., n), dtype of `a`
    trans_a, trans_b : bool
    out_dtype : dtype, optional
        As for `det_gemm`, for both results.

    Returns
    -------
    da : array, shape of `a`
        Its rows (columns with `trans_a`) depend on one row of `dc` each.
    db : array, shape of `b`
        Summed over the batch in its order, in steps of 16 for 16-bit floats. Zero rows at the end
        change nothing. For gradients in pieces or in other layouts: `WeightGradient`.

    Raises
    ------
    ShapeError, DTypeError, DeviceError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> da, db = rk.det_gemm_backward(a, b, np.ones((2, 4), np.float32))
    >>> da[0].tolist(), db[0].tolist()
    ([4.0, 4.0, 4.0], [2.0, 2.0, 2.0, 2.0])
    """
    a = _device.any_array(a, b, "a")
    b, dc = _device.any_array(b, a, "b"), _device.any_array(dc, a, "dc")
    if a.ndim not in (0, 2) and b.ndim == 2 and not trans_a:
        n_row, shape = math.prod(a.shape[:-1]), (*a.shape[:-1], b.shape[0 if trans_b else 1])
        if dc.shape != shape:
            raise ShapeError(f"dc: got {dc.shape}, need {shape}")
        rows = a.reshape(n_row, a.shape[-1]), b, dc.reshape(n_row, shape[-1])
        da, db = det_gemm_backward(*rows, trans_b=trans_b, out_dtype=out_dtype)
        return da.reshape(a.shape), db
    m, n, _ = _sizes(a, b, trans_a, trans_b)
    if getattr(dc, "shape", None) != (m, n):
        raise ShapeError(f"dc: got {getattr(dc, 'shape', type(dc).__name__)}, need {(m, n)}")
    return (
        gradient_of_a(a, b, dc, trans_a, trans_b, out_dtype),
        gradient_of_b(a, b, dc, trans_a, trans_b, out_dtype),
    )


def gradient_of_a(
    a: Array, b: Array, dc: Array, trans_a: bool, trans_b: bool, out_dtype: Any = None
) -> Array:
    """Compute the gradient by `a`, the first result of `det_gemm_backward`."""
    if trans_a:
        return det_gemm(b, dc, trans_a=trans_b, trans_b=True, out_dtype=out_dtype)
    return det_gemm(dc, b, trans_b=not trans_b, out_dtype=out_dtype)


def gradient_of_b(
    a: Array, b: Array, dc: Array, trans_a: bool, trans_b: bool, out_dtype: Any = None
) -> Array:
    """Compute the gradient by `b`, the second result of `det_gemm_backward`."""
    if trans_b:
        return det_gemm(dc, a, trans_a=True, trans_b=trans_a, out_dtype=out_dtype)
    return det_gemm(a, dc, trans_a=not trans_a, out_dtype=out_dtype)


def _sizes(a: Array, b: Array, trans_a: bool, trans_b: bool) -> tuple[int, int, int]:
    for name, array in (("a", a), ("b", b)):
        if array.ndim != 2:
            raise ShapeError(f"{name}: got {array.ndim} axes, need 2")
    given: list[tuple[str, Any]] = [("trans_a", trans_a), ("trans_b", trans_b)]
    for name, turned in given:
        if turned.__class__ is not bool:
            flag(turned, name)
    m, k = a.shape[::-1] if trans_a else a.shape
    k_b, n = b.shape[::-1] if trans_b else b.shape
    if k != k_b:
        raise ShapeError(f"cannot multiply ({m}, {k}) by ({k_b}, {n}): the inner lengths differ")
    return m, n, k


def _check_types(a: Array, b: Array, device: _device.Device) -> bool:
    """Whether the factors are 16-bit floats; raise for types and devices without a product."""
    if a.dtype != b.dtype:
        raise DTypeError(f"got dtypes {a.dtype} and {b.dtype}, need the same for both")
    arithmetic(a.dtype, device)
    return format_of(a.dtype) in TENSOR


def _result(
    a: Array,
    b: Array,
    out: Array | None,
    shape: tuple[int, int],
    out_dtype: Any,
    is_tensor: bool,
    device: _device.Device,
) -> Array:
    """Check or allocate the array of the result."""
    taken = [a.dtype, np.dtype(np.float32)] if is_tensor else [a.dtype]
    words = " or ".join(map(str, taken))
    if out_dtype is not None and any_type(out_dtype, "out_dtype") not in taken:
        raise DTypeError(f"out_dtype: got {any_type(out_dtype)}, need {words}")
    if not (out is None or isinstance(out, np.ndarray) or _device.is_cupy(out)):
        raise DTypeError(f"out: got {type(out).__name__}, need an array")
    if out is None:
        return _device.empty(shape, a.dtype if out_dtype is None else out_dtype, device)
    wanted = taken if out_dtype is None else [np.dtype(out_dtype)]
    if out.shape != shape or out.dtype not in wanted or not out.flags.c_contiguous:
        raise ShapeError(
            f"out: got {out.dtype}{list(out.shape)}, need C-contiguous {words}{list(shape)}"
        )
    if any(_device.namespace(out).may_share_memory(out, x) for x in (a, b)):
        raise ShapeError("out overlaps an input, need an array with memory of its own")
    return out
