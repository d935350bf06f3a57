"""Arrays as other libraries hand them over."""

import numpy as np


class OnlyDLPack:
    """What the array API asks for, and nothing more."""

    def __init__(self, array, kind=None):
        self._array, self._kind = array, kind

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._kind or self._array.__dlpack_device__()


class OnlyArray:
    """An array of a library that NumPy reads by ``__array__``."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype)


class Labelled(OnlyArray):
    """What an array of xarray has: axes with names and places, and a way to wrap results."""

    dims, coords = ("sample", "variable"), {"sample": [3, 4]}

    @property
    def shape(self):
        return self._array.shape

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return Labelled(array)
