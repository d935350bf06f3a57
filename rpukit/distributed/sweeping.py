"""Sweeps: a function over points of a parameter space, with seeds, on any workers."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.distributed.workers import Workers, shown
from rpukit.errors import FormatError, ParameterError

__all__ = ["Run", "seed_of", "sweep"]

_FORMAT, _VERSION = "rpukit.runs", 1


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a sweep.

    Attributes
    ----------
    point : dict
        Arguments of the function.
    seed : int
        Number of the repetition.
    result : Any
        What the function returned, as JSON holds it: arrays are lists.
    seconds : float
        How long the call took.
    """

    point: dict[str, Any]
    seed: int
    result: Any
    seconds: float


def sweep(
    function: Callable[..., Any],
    points: Iterable[Mapping[str, Any]],
    *,
    seeds: int | Iterable[int] = 1,
    client: Any = None,
    record: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> list[Run]:
    """Call a function at each point, once for each seed, and keep what it returns.

    Parameters
    ----------
    function : callable
        Called as ``function(**point, seed=number)``; returns numbers, text, lists, dicts or
        arrays. Workers of a process pool have to be able to import it.
    points : iterable of mappings
        Arguments by name: numbers, text, lists or dicts.
    seeds : int or iterable of int
        How many repetitions of each point, or their numbers.
    client : distributed.Client, concurrent.futures.Executor, optional
        Who makes the calls. Default: this process.
    record : path, optional
        File of JSON lines that gets each result as it comes. Calls whose result it holds already
        are not made again.
    progress : bool
        Show a progress bar, if tqdm is installed.

    Returns
    -------
    list of Run
        In the order of the points, and of the seeds of each.

    Raises
    ------
    ParameterError
        For points that JSON cannot hold or that come twice, and for a record of another function.
    FormatError
        If the record is no such file.

    Notes
    -----
    The random seed of a call is `seed_of` its point and its number, so results depend neither on
    the workers nor on the order or number of the points. If a call fails, the others are made and
    recorded; then its error is raised. Results of killed workers of Dask are computed by others.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> def error(noise, seed):
    ...     io = rk.IOParameters(out_noise_std=noise)
    ...     tile = rk.AnalogTile((4, 4), rk.Ideal(), forward=io, seed=seed)
    ...     return float(tile.forward(np.ones((50, 4), np.float32)).std())
    >>> runs = rk.distributed.sweep(error, [{"noise": s} for s in (0.01, 0.1)], seeds=2)
    >>> [run.point["noise"] for run in runs]
    [0.01, 0.01, 0.1, 0.1]
    >>> runs[0].result < runs[2].result
    True
    """
    workers, wanted = Workers(client), _calls(points, seeds)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
    path = None if record is None else Path(record)
    found = {} if path is None else _recorded(path, name)
    todo = [key for key in wanted if key not in found]
    bar = shown(len(wanted), progress, "run")
    if bar is not None:
        bar.update(len(wanted) - len(todo))
    failed: BaseException | None = None
    calls = workers.results(partial(_called, function), [(key, *wanted[key]) for key in todo])
    try:
        for (key, point, seed), (result, seconds, error) in calls:
            if error is not None:
                error.add_note(f"at point {point}, seed {seed}")
                failed = failed or error
                continue
            found[key] = Run(point, seed, result, seconds)
            if path is not None:
                _append(path, name, found[key])
            if bar is not None:
                bar.update()
    finally:
        if bar is not None:
            bar.close()
    if failed is not None:
        raise failed
    return [found[key] for key in wanted]


def seed_of(point: Mapping[str, Any], seed: int) -> int:
    """Derive the random seed of a call of `sweep`: 63 bits of a hash of its point and number.

    Parameters
    ----------
    point : mapping
    seed : int

    Returns
    -------
    int

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.distributed.seed_of({"noise": 0.1}, 0) == rk.distributed.seed_of({"noise": 0.1}, 1)
    False
    """
    digest = hashlib.sha256(_key(dict(point), seed).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _called(function: Callable[..., Any], call: tuple[str, dict[str, Any], int]) -> Any:
    """Make a call on a worker: result, seconds and error."""
    _, point, seed = call
    before = time.perf_counter()
    try:
        result = _plain(function(**point, seed=seed_of(point, seed)), "result")
    except Exception as error:
        return None, 0.0, error
    return json.loads(json.dumps(result)), round(time.perf_counter() - before, 6), None


def _calls(
    points: Iterable[Mapping[str, Any]], seeds: int | Iterable[int]
) -> dict[str, tuple[dict[str, Any], int]]:
    """List the calls by their keys."""
    numbers = range(seeds) if isinstance(seeds, (int, np.integer)) else [int(k) for k in seeds]
    if not len(numbers):
        raise ParameterError(f"seeds: got {seeds!r}, need one or more")
    found: dict[str, tuple[dict[str, Any], int]] = {}
    for given in points:
        if not isinstance(given, Mapping) or "seed" in given:
            raise ParameterError(
                f'points: got {given!r}, need mappings of arguments by name, without "seed"'
            )
        point = json.loads(json.dumps(_plain(dict(given), "points")))
        for seed in numbers:
            key = _key(point, seed)
            if key in found:
                raise ParameterError(f"points: {point!r} with seed {seed} comes twice")
            found[key] = (point, seed)
    return found


def _key(point: dict[str, Any], seed: int) -> str:
    return json.dumps([_plain(point, "points"), int(seed)], sort_keys=True)


def _plain(value: Any, name: str) -> Any:
    """Turn arrays, NumPy's numbers and mappings into what JSON holds."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each, name) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, name) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), name)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ParameterError(
        f"{name}: got {type(value).__name__}, need numbers, text, lists, dicts or arrays, which a "
        "record can hold"
    )


def _recorded(path: Path, name: str) -> dict[str, Run]:
    """Read the runs of a record; a last line that is not whole is cut off."""
    if not path.exists() or not path.stat().st_size:
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
    if not whole:
        return {}
    try:
        lines = [json.loads(line) for line in data[:whole].splitlines()]
        header, runs = lines[0], [Run(**line) for line in lines[1:]]
        if (header["format"], header["version"]) != (_FORMAT, _VERSION):
            raise KeyError(header["format"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FormatError(f"{path}: this is no record of a sweep: {error}") from error
    if header["function"] != name:
        raise ParameterError(
            f"record: {path} holds runs of {header['function']}, got {name}: give another file"
        )
    return {_key(run.point, run.seed): run for run in runs}


def _append(path: Path, name: str, run: Run) -> None:
    """Write one result; it is on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        if not file.tell():
            header = {"format": _FORMAT, "version": _VERSION, "function": name}
            file.write(json.dumps(header) + "\n")
        line = {
            "point": run.point,
            "seed": run.seed,
            "result": run.result,
            "seconds": run.seconds,
        }
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
