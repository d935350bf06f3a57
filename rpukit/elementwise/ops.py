"""Ops that work element by element (or row by row), with the same bits on CPU and GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows
from rpukit.errors import DTypeError, ParameterError, ShapeError
from rpukit.random import MAX_SAMPLE, Op, Stream

Array = Any

_RANDOM_FILL = Kernel("random_fill")
_MATH_MAP = Kernel("math_map")
_SOFTMAX_CROSS_ENTROPY = Kernel("softmax_cross_entropy")

KINDS = {"bits": 0, "uniform": 1, "normal": 2}
FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "normal_quantile", "reciprocal", "sigmoid", "sqrt", "tanh",
)  # fmt: skip
_GRAIN = 1 << 15  # elements that are worth a thread


def _mirror() -> Any:
    return import_module("rpukit.elementwise._mirror")


def random_fill(
    stream: Stream,
    shape: tuple[int, ...],
    kind: str = "normal",
    *,
    op: int = Op.FILL,
    sample: int = 0,
    draw: int = 0,
    device: str | _device.Device = "cpu",
) -> Array:
    """Make an array of random draws: element i is a draw at index i.

    Parameters
    ----------
    stream : Stream
    shape : tuple of int
    kind : {"normal", "uniform", "bits"}
        Standard normals, uniforms in (0, 1), or 32-bit words.
    op : int, 0 to 65534
        Op tag of the draws, see `rpukit.random.Op`.
    sample : int, 0 to 2**48 - 1
    draw : int, 0 to 65535
        Which draw of each (op, index, sample).
    device : str

    Returns
    -------
    array, shape `shape`, float32 (uint32 for bits)

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    Kernel: kernels_cu/random_fill.cu. Source: Salmon et al., SC 2011.

    Examples
    --------
    >>> import rpukit as rk
    >>> z = rk.elementwise.random_fill(rk.Stream.from_seed(7), (1000,))
    >>> bool(abs(z.mean()) < 0.1)
    True
    """
    if kind not in KINDS:
        raise ParameterError(f"kind: got {kind!r}, need one of {sorted(KINDS)}")
    for name, value, end in (("op", op, 1 << 16), ("sample", sample, MAX_SAMPLE), ("draw", draw, 1 << 16)):
        if not 0 <= value < end:
            raise ParameterError(f"{name}: got {value!r}, need an integer in [0, {end})")
    where = _device.parse_device(device)
    out = _device.empty(tuple(shape), np.uint32 if kind == "bits" else np.float32, where)
    if _device.runs_kernels(_device.namespace(out)):
        args = (out.size, int(op), sample, draw, out, stream.key0, stream.key1)
        macros = {"KIND": KINDS[kind], "OUT": "u32" if kind == "bits" else "float"}
        _RANDOM_FILL.launch((-(-out.size // 256),), (256,), args, macros=macros)
    else:
        mirror = _mirror()
        run_rows(mirror.random_fill, out.size, mirror.TRANSFORMS[kind], int(op), sample, draw,
                 np.uint32(stream.key0), np.uint32(stream.key1), out.reshape(-1), grain=_GRAIN)  # fmt: skip
    return out


def math_map(name: str, x: Array, *, out: Array | None = None) -> Array:
    """Apply one of our elementary functions to every element.

    Parameters
    ----------
    name : str
        ``exp``, ``expm1``, ``log``, ``log1p``, ``normal_quantile``, ``reciprocal``, ``sigmoid``, ``sqrt``
        or ``tanh``.
    x : array, any shape, float32
    out : array, shape of `x`, float32, optional
        Where the result goes; it may be `x`.

    Returns
    -------
    array, shape of `x`, float32

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
    if name not in FUNCTIONS:
        raise ParameterError(f"name: got {name!r}, need one of {', '.join(FUNCTIONS)}")
    device = _device.device_of(x)
    x = _device.as_array(x, device, np.float32, "x")
    if out is None:
        out = _device.empty(x.shape, np.float32, device)
    elif out.shape != x.shape or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ShapeError(f"out: got {out.dtype}{list(out.shape)}, need C-contiguous float32{list(x.shape)}")
    if _device.runs_kernels(_device.namespace(x, out)):
        args = (x.size, x, out)
        _MATH_MAP.launch((-(-x.size // 256),), (256,), args, macros={"FUNC": f"rk_{name}"})
    else:
        mirror = _mirror()
        run_rows(mirror.math_map, x.size, mirror.FUNCTIONS[name], x.reshape(-1), out.reshape(-1), grain=_GRAIN)
    return out


def softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Compute the cross-entropy of softmax(logits) with labels, and its gradient by the logits.

    Parameters
    ----------
    logits : array, shape (n_batch, n_class), float32
    labels : array, shape (n_batch,), int32
        0 to n_class - 1.

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
    device = _device.device_of(logits)
    logits = _device.as_array(logits, device, np.float32, "logits")
    if labels.dtype != np.int32:
        raise DTypeError(f"labels: got dtype {labels.dtype}, need int32")
    if logits.ndim != 2 or logits.shape[1] < 1 or labels.shape != logits.shape[:1]:
        raise ShapeError(
            f"got logits of shape {tuple(logits.shape)} and labels of {tuple(labels.shape)}, "
            "need (n_batch, n_class) and (n_batch,)"
        )
    xp = _device.namespace(logits, labels)
    labels = xp.ascontiguousarray(labels)
    n_batch, n_class = logits.shape
    loss = _device.empty((n_batch,), np.float32, device)
    gradient = _device.empty((n_batch, n_class), np.float32, device)
    if _device.runs_kernels(xp):
        args = (n_batch, n_class, logits, labels, loss, gradient)
        _SOFTMAX_CROSS_ENTROPY.launch((-(-n_batch // 128),), (128,), args)
    else:
        if n_batch and not (labels.min() >= 0 and labels.max() < n_class):
            raise ParameterError(f"labels: got {labels.min()} to {labels.max()}, need 0 to {n_class - 1}")
        run_rows(_mirror().softmax_cross_entropy, n_batch, logits, labels, loss, gradient, grain=1024)
    return loss, gradient
