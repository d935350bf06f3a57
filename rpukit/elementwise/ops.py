"""Elementwise and row-wise ops with the same bits on CPU and GPU."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import (
    float32_array,
    instance,
    integer,
    labelled,
    need_memory,
    one_of,
    plain,
    shown,
)
from rpukit._device import Device
from rpukit._kernels import Kernel
from rpukit._kernels.entering import enters_arrays
from rpukit._workers import run_rows
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.random import MAX_SAMPLE, Op, Stream

Array = Any

_RANDOM_FILL = Kernel("random_fill")
_MATH_MAP = Kernel("math_map")
_SOFTMAX_CROSS_ENTROPY = Kernel("softmax_cross_entropy")

KINDS = {"bits": 0, "uniform": 1, "normal": 2}
# Public name -> name in CUDA
FUNCTIONS = {
    "erf": "rk_erf",
    "exp": "rk_exp",
    "expm1": "rk_expm1",
    "lgamma": "rk_lgamma",
    "log": "rk_log",
    "log1p": "rk_log1p",
    "normal_quantile": "rk_normal_quantile",
    "reciprocal": "rk_reciprocal",
    "sigmoid": "rk_sigmoid",
    "sqrt": "rk_sqrt",
    "tanh": "rk_tanh",
}
FUNCTIONS_OF_TWO = {"logaddexp": "rk_logaddexp", "power": "rk_pow"}
_GRAIN = 1 << 15  # elements that are worth a thread
_INT = (1 << 31) - 1


def _mirror() -> Any:
    return import_module("rpukit.elementwise._mirror")


def _blocks(n: int, size: int) -> tuple[int]:
    return (-(-n // size),)


def _result(out: Array | None, shape: tuple[int, ...], dtype: Any, device: Device) -> Array:
    """Check the array given for the result, or allocate one."""
    if out is None:
        return _device.empty(shape, dtype, device)
    if not (isinstance(out, np.ndarray) or _device.is_cupy(out)):
        raise DTypeError(f"out: got {type(out).__name__}, need an array")
    if _device.device_of(out) != device:
        raise DeviceError(f"out is on {_device.device_of(out)}, need {device}")
    if out.dtype != dtype:
        raise DTypeError(f"out: got dtype {out.dtype}, need {np.dtype(dtype)}")
    if out.shape != shape or not out.flags.c_contiguous:
        layout = "" if out.flags.c_contiguous else ", not C-contiguous"
        raise ShapeError(f"out: got {out.shape}{layout}, need C-contiguous {shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ParameterError("out: got a read-only array, need one that can be written")
    return out


def random_fill(
    stream: Stream,
    shape: int | tuple[int, ...],
    kind: str = "normal",
    *,
    op: int = Op.FILL,
    sample: int = 0,
    draw: int = 0,
    device: str | Device = "cpu",
    out: Array | None = None,
) -> Array:
    """Make an array of random draws: element i is a draw at index i.

    Parameters
    ----------
    stream : Stream
    shape : int or tuple of int
    kind : {"normal", "uniform", "bits"}
        Standard normals, uniforms in (0, 1), or 32-bit words.
    op : int, 0 to 65534
        Op tag of the draws, see `rpukit.random.Op`.
    sample : int, 0 to 2**48 - 1
    draw : int, 0 to 65535
        Which draw of each (op, index, sample).
    device : str
    out : array, shape `shape`, float32 (uint32 for bits), optional
        Where the draws go; on `device`.

    Returns
    -------
    array, shape `shape`, float32 (uint32 for bits)

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Elements are numbered in C order. Kernel: kernels_cu/random_fill.cu. Source: Salmon et al.,
    SC 2011.

    Examples
    --------
    >>> import rpukit as rk
    >>> z = rk.elementwise.random_fill(rk.Stream.from_seed(7), (1000,))
    >>> bool(abs(z.mean()) < 0.1)
    True
    """
    one_of(kind, "kind", KINDS)
    instance(stream, Stream, "stream")
    op = integer(op, "op", low=0, high=0xFFFE)
    sample = integer(sample, "sample", low=0, high=MAX_SAMPLE - 1)
    draw = integer(draw, "draw", low=0, high=(1 << 16) - 1)
    shape = _lengths(shape)
    need_memory(4 * math.prod(shape), f"random_fill of shape {shape}")
    dtype = np.uint32 if kind == "bits" else np.float32
    out = _result(out, shape, dtype, _device.parse_device(device))
    if _device.runs_kernels(_device.namespace(out)):
        args = (out.size, int(op), sample, draw, out, stream.key0, stream.key1)
        macros = {"KIND": KINDS[kind], "OUT": "u32" if kind == "bits" else "float"}
        _RANDOM_FILL.launch(_blocks(out.size, 256), (256,), args, macros=macros)
    else:
        mirror = _mirror()
        key = (np.uint32(stream.key0), np.uint32(stream.key1))
        where = (mirror.TRANSFORMS[kind], int(op), int(sample), int(draw))
        run_rows(mirror.random_fill, out.size, *where, *key, out.reshape(-1), grain=_GRAIN)
    return out


def _lengths(shape: Any) -> tuple[int, ...]:
    """Check a shape: one length, or several."""
    try:
        several = shape if isinstance(shape, (tuple, list)) else (plain(shape),)
        return tuple(integer(n, "shape", low=0, high=MAX_SAMPLE) for n in several)
    except ParameterError as error:
        raise ShapeError(f"shape: got {shown(shape)}, need lengths from 0") from error


@enters_arrays
def math_map(name: str, x: Array, y: Array | None = None, *, out: Array | None = None) -> Array:
    """Apply one of our elementary functions to every element.

    Parameters
    ----------
    name : str
        ``erf``, ``exp``, ``expm1``, ``lgamma``, ``log``, ``log1p``, ``normal_quantile``,
        ``reciprocal``, ``sigmoid``, ``sqrt``, ``tanh``, or, of two arguments, ``logaddexp`` or
        ``power``.
    x : array, any shape, float32 or float64
        Integers and nested lists are taken as float64, as NumPy does.
    y : array, shape that broadcasts with `x`, type of `x`, optional
        Second argument. A Python number takes the type of `x`, and the other way round.
    out : array, shape and type of the result, optional
        Where the result goes; it may be an input.

    Returns
    -------
    array, float32 or float64

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Same bits on CPU and GPU. Largest errors: docs/math.md. Kernel: kernels_cu/math_map.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> rk.elementwise.math_map("exp", np.zeros(2, np.float32))
    array([1., 1.], dtype=float32)
    """
    functions = FUNCTIONS if y is None else FUNCTIONS_OF_TWO
    if not isinstance(name, str) or name not in functions:
        count = "one argument" if y is None else "two arguments"
        raise ParameterError(
            f"name: got {shown(name)}, of {count} there are {', '.join(functions)}"
        )
    inputs = _inputs(x, y)
    dtype = inputs[0].dtype
    out = _result(out, inputs[0].shape, dtype, _device.device_of(inputs[0]))
    flat = [a.reshape(-1) for a in inputs]
    if _device.runs_kernels(_device.namespace(*inputs, out)):
        real = "float" if dtype == np.float32 else "double"
        args = (out.size, flat[0], None if y is None else flat[1], out)
        macros = {"FUNC": functions[name], "REAL": real, "ARGUMENTS": len(inputs)}
        _MATH_MAP.launch(_blocks(out.size, 256), (256,), args, macros=macros)
    else:
        mirror = _mirror()
        mapped = mirror.math_map if y is None else mirror.math_map_two
        function = mirror.function(name, 8 * dtype.itemsize)
        run_rows(mapped, out.size, function, *flat, out.reshape(-1), grain=_GRAIN)
    return labelled(out, x)


def _typed(x: Any, name: str) -> Any:
    """Take an array of any library with its own type; numbers and lists have none."""
    own = _device.speaks_of_memory(x) or hasattr(x, "__array__")
    if isinstance(x, memoryview):
        return np.asarray(x)
    return _device.any_array(x, None, name) if own and not isinstance(x, np.generic) else x


def _inputs(x: Array, y: Array | None) -> list[Array]:
    """Convert one or two arguments to one device, type and shape, C-contiguous."""
    given = (
        [("x", _typed(x, "x"))] if y is None else [("x", _typed(x, "x")), ("y", _typed(y, "y"))]
    )
    arrays = [a for _, a in given if isinstance(a, np.ndarray) or _device.is_cupy(a)]
    device = _device.device_of(arrays[0]) if arrays else _device.CPU
    found = [a.dtype for a in arrays if a.dtype.kind == "f"]
    dtype = np.result_type(*found) if found else np.dtype(np.float64)  # the wider, native order
    if dtype not in (np.float32, np.float64):
        raise DTypeError(f"got dtype {dtype}, need float32 or float64; use .astype")
    inputs = [_device.as_array(a, device, dtype, name) for name, a in given]
    if len(inputs) == 2 and inputs[0].shape != inputs[1].shape:
        xp = _device.namespace(*inputs)
        try:
            shape = np.broadcast_shapes(inputs[0].shape, inputs[1].shape)
        except ValueError:
            raise ShapeError(
                f"got x of shape {inputs[0].shape} and y of {inputs[1].shape}: no broadcast"
            ) from None
        inputs = [xp.ascontiguousarray(xp.broadcast_to(a, shape)) for a in inputs]
    return inputs


@enters_arrays
def softmax_cross_entropy(
    logits: Array, labels: Array, *, out: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Compute the cross-entropy of softmax(logits) with labels, and its gradient by the logits.

    Parameters
    ----------
    logits : array, shape (n_batch, n_class), float32
    labels : array, shape (n_batch,), int32
        0 to n_class - 1.
    out : tuple of two arrays, optional
        Where loss and gradient go.

    Returns
    -------
    loss : array, shape (n_batch,), float32
    gradient : array, shape (n_batch, n_class), float32
        Of each row's own loss: not divided by n_batch.

    Raises
    ------
    ShapeError, DTypeError, DeviceError
    ParameterError
        If a label is out of range and the arrays are on the CPU; on a GPU its row becomes NaN.

    Notes
    -----
    Classes are summed in ascending order. Kernel: kernels_cu/softmax_cross_entropy.cu.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> z, y = np.zeros((1, 4), np.float32), np.array([2], np.int32)
    >>> loss, gradient = rk.elementwise.softmax_cross_entropy(z, y)
    >>> gradient
    array([[ 0.25,  0.25, -0.75,  0.25]], dtype=float32)
    """
    logits = float32_array(logits, "logits")
    device = _device.device_of(logits)
    labels = _device.any_array(labels, np.empty(0, np.int32), "labels")
    if labels.dtype.kind not in "iu":
        raise DTypeError(f"labels: got dtype {labels.dtype}, need integers; use .astype")
    if labels.dtype.itemsize > 4 or labels.dtype.kind == "u":  # too large a label stays one
        labels = _device.namespace(labels).clip(
            labels, -1 if labels.dtype.kind == "i" else 0, _INT
        )
    labels = _device.as_array(labels, device, np.dtype(np.int32), "labels")
    if logits.ndim != 2 or logits.shape[1] < 1 or labels.shape != logits.shape[:1]:
        raise ShapeError(
            f"got logits of shape {tuple(logits.shape)} and labels of {tuple(labels.shape)}, "
            "need (n_batch, n_class) and (n_batch,)"
        )
    n_batch, n_class = logits.shape
    if out is not None and not (isinstance(out, (tuple, list)) and len(out) == 2):
        raise ParameterError(f"out: got {shown(out)}, need a pair of arrays")
    loss = _result(out[0] if out else None, (n_batch,), np.float32, device)
    gradient = _result(out[1] if out else None, (n_batch, n_class), np.float32, device)
    if _device.runs_kernels(_device.namespace(logits, labels)):
        args = (n_batch, n_class, logits, labels, loss, gradient)
        _SOFTMAX_CROSS_ENTROPY.launch(_blocks(n_batch, 128), (128,), args)
    else:
        if n_batch and not (labels.min() >= 0 and labels.max() < n_class):
            got = f"{labels.min()} to {labels.max()}"
            raise ParameterError(f"labels: got {got}, need 0 to {n_class - 1}")
        mirror = _mirror().softmax_cross_entropy
        run_rows(mirror, n_batch, logits, labels, loss, gradient, grain=1024)
    return loss, gradient
