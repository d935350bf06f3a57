"""Small arrays of numbers that users give: parameters, weights, measurements."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DTypeError

__all__ = ["float32_array", "integers", "real_array"]


def real_array(value: Any, name: str, dtype: Any = np.float64) -> np.ndarray:
    """Convert anything that is taken as an array to one of real numbers on the CPU.

    Parameters
    ----------
    value : array_like
    name : str
    dtype : dtype

    Returns
    -------
    array
        Not always a copy.

    Raises
    ------
    DTypeError, ShapeError, DeviceError
    """
    array: np.ndarray = _device.as_array(value, _device.CPU, np.dtype(dtype), name)
    return array


def integers(value: Any, name: str) -> np.ndarray:
    """Convert anything that is taken as an array of integers or booleans, on the CPU.

    Parameters
    ----------
    value : array_like
    name : str

    Returns
    -------
    array
        With the type that it has; not always a copy.

    Raises
    ------
    DTypeError, ShapeError, DeviceError
    """
    array = value if isinstance(value, np.ndarray) else _device.listed(value, name)
    if array.dtype.kind not in "iub" and array.size:
        raise DTypeError(f"{name}: got {array.dtype}, need integers or booleans")
    return array


def float32_array(value: Any, name: str) -> Any:
    """Convert anything that is taken as an array to float32, where it is.

    Parameters
    ----------
    value : array_like
    name : str

    Returns
    -------
    array
        Of NumPy or CuPy; not always a copy.

    Raises
    ------
    DTypeError, ShapeError, DeviceError
    """
    kind = np.dtype(np.float32)
    array = _device.any_array(value, np.empty(0, kind), name)
    return _device.as_array(array, _device.device_of(array), kind, name)


def labelled(result: Any, given: Any) -> Any:
    """Give a result the labels of the array it was computed from, if the shapes are the same.

    Parameters
    ----------
    result : array
    given : object
        An array of xarray, which has ``dims`` and ``coords``, wraps the result.

    Returns
    -------
    array
        The result itself for arrays without labels, for other shapes and on a GPU.
    """
    if not (hasattr(given, "dims") and hasattr(given, "coords")):
        return result
    same = isinstance(result, np.ndarray) and result.shape == getattr(given, "shape", None)
    return given.__array_wrap__(result) if same else result
