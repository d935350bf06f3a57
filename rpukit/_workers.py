"""Run a mirror over independent blocks of rows in a thread pool.

The mirrors are serial and release the GIL. A block is a range of rows (or samples, or cells) that
no other block reads or writes, so the bits do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from rpukit.errors import ParameterError

_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_n_threads: int | None = None

_LIMITS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
_MOST_THREADS = 4096
_WORTH_A_THREAD = 1 << 16  # elementary steps, about the time that handing them to a thread takes


def get_num_threads() -> int:
    """Tell how many threads mirrors use: as set, ``RPUKIT_NUM_THREADS``, or the default.

    The default is the smallest of the number of cores that this process may use,
    ``OMP_NUM_THREADS`` and ``NUMBA_NUM_THREADS``: so joblib and Dask, which set these for their
    workers, limit rpukit too.

    Returns
    -------
    int

    Raises
    ------
    ParameterError
        If RPUKIT_NUM_THREADS is not a number from 1 to 4096. An empty one is as none.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.get_num_threads() >= 1
    True
    """
    if _n_threads is not None:
        return _n_threads
    text = os.environ.get("RPUKIT_NUM_THREADS", "")
    if text:
        # Digits of other scripts are digits to Python, too.
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_THREADS):
            raise ParameterError(
                f"RPUKIT_NUM_THREADS: got {text!r}, need a number from 1 to {_MOST_THREADS}"
            )
        return int(text)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min([cores, *(limit for limit in map(_limit_of, _LIMITS) if limit)])


def _limit_of(name: str) -> int:
    """Read another library's limit, such as "4" or "4,2" for nested loops; 0 for none."""
    text = os.environ.get(name, "").split(",")[0].strip()
    return int(text) if text.isdigit() else 0


def set_num_threads(n: int | None) -> None:
    """Set how many threads the CPU mirrors use; None goes back to the default.

    The result of an operation does not depend on it.

    Parameters
    ----------
    n : int or None

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.set_num_threads(1)
    >>> rk.get_num_threads()
    1
    >>> rk.set_num_threads(None)
    """
    global _n_threads
    if n is not None and (not isinstance(n, int) or n < 1):
        raise ParameterError(f"n: got {n!r}, need an integer from 1, or None")
    _n_threads = n


def run_rows(mirror: Callable[..., Any], n_rows: int, *args: Any, grain: int = 1) -> None:
    """Call ``mirror(start, stop, *args)`` over blocks that cover ``range(n_rows)``.

    ``grain`` is the least number of rows that is worth a thread of its own.
    """
    n_blocks = n_rows // max(grain, 1)
    if n_blocks > 1:  # one sample at a time is the common case: no look at the environment
        n_blocks = min(get_num_threads(), n_blocks)
    if n_blocks <= 1:
        if n_rows:
            mirror(0, n_rows, *args)
        return
    edges = [n_rows * i // n_blocks for i in range(n_blocks + 1)]
    pool = _get_pool(n_blocks)
    jobs: list[Future[Any]] = []
    try:
        for i in range(1, n_blocks):
            jobs.append(pool.submit(mirror, edges[i], edges[i + 1], *args))
        mirror(edges[0], edges[1], *args)
    finally:
        wait(jobs)
    for job in jobs:
        job.result()


def work_grain(work_per_row: int) -> int:
    """Rows that are worth a thread, at so many elementary steps a row."""
    return max(1, _WORTH_A_THREAD // max(work_per_row, 1))


def _get_pool(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < size:
        if _pool is not None:
            _pool.shutdown(wait=True)
        _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="rpukit"), size
    return _pool


def _forget_pool() -> None:  # the threads of the parent do not live in a forked child
    global _pool, _pool_size
    _pool, _pool_size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
