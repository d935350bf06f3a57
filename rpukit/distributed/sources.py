"""Data that need not fit a machine: cut into units of samples that workers read themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.errors import DTypeError, ParameterError, ShapeError

__all__ = ["Source", "Unit", "source_of"]

Array = Any
Sizes = Callable[[int], Iterator[int]]


@dataclass(frozen=True, slots=True)
class Unit:
    """Samples of one call: ``reader(*args)`` gives them, on the worker."""

    step: int  # number of the step of learning in its epoch
    first: int  # of its samples, since the last step
    n: int
    reader: Callable[..., Array]
    args: tuple[Any, ...]

    def started(self, client: Any) -> tuple[Unit, tuple[Any, ...]]:
        """Compute arrays of Dask: on its cluster, as another argument of the call, or here."""
        if self.reader is not _computed:
            return self, ()
        (array,) = self.args
        if client is None:
            return replace(self, reader=np.asarray, args=(array.compute(),)), ()
        return replace(self, args=()), (client.compute(array),)

    def read(self) -> Array:
        """Read the samples."""
        return self.reader(*self.args)


class Source:
    """Samples that can be cut into units.

    Parameters
    ----------
    n : int or None
        How many; None where only reading tells.
    cut : callable
        From sizes of units to the readers of units of these sizes, as many as there are.
    again : bool
        Whether the samples can be read more than once.
    """

    def __init__(
        self,
        n: int | None,
        cut: Callable[[Iterator[int]], Iterator[tuple[int, Callable[..., Array], Any]]],
        *,
        again: bool = True,
    ) -> None:
        self.n, self._cut, self.again = n, cut, again

    def units(self, unit: int, batch: int | None) -> Iterator[Unit]:
        """Cut the samples: steps of ``batch`` samples (None: all), units of at most ``unit``."""

        def places() -> Iterator[tuple[int, int, int]]:
            step, first = 0, 0
            while True:
                yield step, first, unit if batch is None else min(unit, batch - first)
                first += unit
                if batch is not None and first >= batch:
                    step, first = step + 1, 0

        here: list[tuple[int, int]] = []

        def sizes() -> Iterator[int]:
            for step, first, size in places():
                here.append((step, first))
                yield size

        for n, reader, args in self._cut(sizes()):
            step, first = here.pop(0)
            yield Unit(step, first, n, reader, args)


def source_of(data: Any) -> Source:
    """Find out how to cut data.

    Raises
    ------
    DTypeError, ShapeError, ParameterError
    """
    if isinstance(data, Source):
        return data
    module = type(data).__module__.split(".")[0]
    if module == "dask":
        _need_samples(data.shape)
        return _sliced(data.shape[0], lambda a, b: (_computed, (data[a:b],)))
    if isinstance(data, (str, os.PathLike)):
        path = Path(data)
        if path.is_dir() and path.suffix != ".npy" and list(path.glob("*.npy")):
            return _shards(sorted(path.glob("*.npy")))
        if path.suffix == ".npy":
            return _shards([path])
        opened = _opened_zarr(str(path))
        _need_samples(opened.shape)
        return _sliced(opened.shape[0], lambda a, b: (_from_zarr, (str(path), a, b)))
    if hasattr(data, "shape") and hasattr(data, "__getitem__"):
        _need_samples(data.shape)
        if module == "zarr":  # workers read it from its store
            return _sliced(data.shape[0], lambda a, b: (_from_array, (data, a, b)))
        return _sliced(data.shape[0], lambda a, b: (np.asarray, (data[a:b],)))
    if isinstance(data, Sequence) and data and isinstance(data[0], (str, os.PathLike)):
        return _shards([Path(path) for path in data])
    if callable(data):
        return Source(None, lambda sizes: _rebatched(data(), sizes))
    if isinstance(data, Iterable):
        again = not isinstance(data, Iterator)
        return Source(None, lambda sizes: _rebatched(data, sizes), again=again)
    raise DTypeError(
        f"data: got {type(data).__name__}, need an array of NumPy, Dask or Zarr, paths of .npy "
        "files, or an iterable of blocks of samples"
    )


def _sliced(n: int, reader: Callable[[int, int], tuple[Callable[..., Array], Any]]) -> Source:
    """Cut what can be sliced."""

    def cut(sizes: Iterator[int]) -> Iterator[tuple[int, Callable[..., Array], Any]]:
        first = 0
        while first < n:
            end = min(first + next(sizes), n)
            yield end - first, *reader(first, end)
            first = end

    return Source(n, cut)


def _shards(paths: Sequence[Path]) -> Source:
    """Cut .npy files, one after the other, of which workers read their rows."""
    lengths = []
    for path in paths:
        try:
            shape = np.load(path, mmap_mode="r").shape
        except (OSError, ValueError) as error:
            raise ParameterError(
                f"data: {path} is no .npy file that can be read: {error}"
            ) from error
        _need_samples(shape)
        lengths.append(shape[0])
    edges = np.concatenate([[0], np.cumsum(lengths)])

    def reader(a: int, b: int) -> tuple[Callable[..., Array], Any]:
        parts = []
        for path, (start, stop) in zip(paths, pairwise(edges), strict=True):
            if max(a, start) < min(b, stop):
                parts.append((str(path), int(max(a, start) - start), int(min(b, stop) - start)))
        return _from_files, (parts,)

    return _sliced(int(edges[-1]), reader)


def _rebatched(
    blocks: Iterable[Array], sizes: Iterator[int]
) -> Iterator[tuple[int, Callable[..., Array], Any]]:
    """Cut blocks of any lengths, as they come, into units."""
    held: list[Array] = []
    n, size = 0, next(sizes)
    for given in blocks:
        block = np.asarray(given)
        _need_samples(block.shape)
        held.append(block)
        n += len(block)
        while n >= size:
            whole = np.concatenate(held)
            held, n = [whole[size:]], n - size
            yield size, np.asarray, (whole[:size],)
            size = next(sizes)
    if n:
        yield n, np.asarray, (np.concatenate(held),)


def _need_samples(shape: Any) -> None:
    if len(shape) != 2:
        raise ShapeError(f"data: got shape {tuple(shape)}, need (n_sample, n_variables)")


def _computed() -> Array:
    """Mark the samples that Dask computes: they are another argument of the call."""
    raise NotImplementedError


def _from_array(array: Any, a: int, b: int) -> Array:
    return np.asarray(array[a:b])


def _from_files(parts: Sequence[tuple[str, int, int]]) -> Array:
    read = [np.array(np.load(path, mmap_mode="r")[a:b]) for path, a, b in parts]
    return read[0] if len(read) == 1 else np.concatenate(read)


def _from_zarr(path: str, a: int, b: int) -> Array:
    return np.asarray(_opened_zarr(path)[a:b])


def _opened_zarr(path: str) -> Any:
    try:
        zarr = import_module("zarr")
    except ImportError as error:
        raise ParameterError(
            f"data: {path} is no .npy file, and Zarr is not installed: pip install zarr"
        ) from error
    return zarr.open_array(path, mode="r")
