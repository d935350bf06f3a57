"""One face of Dask clients, executors and this process: results as they come, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from importlib import import_module
from typing import Any

from rpukit.errors import ParameterError

__all__ = ["Workers", "shown"]

_LEAST = 4  # calls that are under way
_TRIES = 5  # a call whose inputs are lost with a killed worker is sent again


class Workers:
    """Workers that a client reaches.

    Parameters
    ----------
    client : distributed.Client, concurrent.futures.Executor or None
        None works in this process, one call after the other.

    Raises
    ------
    ParameterError
    """

    def __init__(self, client: Any = None) -> None:
        self.client, self._executor = client, None
        if client is None:
            return
        if isinstance(client, Executor):
            self._executor = client
        elif hasattr(client, "get_executor") and hasattr(client, "scatter"):
            # A call is made anew even if one like it was made before.
            self._executor = client.get_executor(pure=False)
        else:
            raise ParameterError(
                f"client: got {client!r}, need a dask.distributed.Client, a "
                "concurrent.futures.Executor or None"
            )

    @property
    def of_dask(self) -> bool:
        """Whether a Dask client is there."""
        return self.client is not None and self._executor is not self.client

    @property
    def in_process(self) -> bool:
        """Whether calls are made here."""
        return self._executor is None

    @property
    def n_thread(self) -> int:
        """How many calls run at once, as far as that is known."""
        if self.of_dask:
            return max(1, int(sum(self.client.nthreads().values())))
        return int(getattr(self._executor, "_max_workers", 1))

    def shared(self, value: Any) -> Any:
        """Send a value to a cluster, whose workers pass it on; give its stand-in for calls."""
        if not self.of_dask:
            return value
        (sent,) = self.client.scatter([value], hash=False)
        return sent

    def results(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        share: Callable[[], Any] | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Call ``function(item)`` for each item; yield (item, result) as they finish.

        ``share`` makes a value for all calls, which is their second argument. Twice as many calls
        are under way as can run at once.
        """
        shared = () if share is None else (self.shared(share()),)
        if self._executor is None:
            for item in items:
                ready, inputs = self._ready(item)
                yield item, function(ready, *shared, *inputs)
            return
        calls: dict[Future[Any], tuple[Any, int]] = {}
        left = iter(items)
        try:
            while True:
                window = max(_LEAST, 2 * self.n_thread)
                for item in left:
                    calls[self._sent(function, item, shared)] = (item, 1)
                    if len(calls) >= window:
                        break
                if not calls:
                    return
                done, _ = wait(calls, return_when=FIRST_COMPLETED)
                for future in done:
                    item, n_try = calls.pop(future)
                    try:
                        result = future.result()
                    except CancelledError:  # its inputs were on a worker that is gone
                        if n_try == _TRIES:
                            raise
                        if share is not None:
                            shared = (self.shared(share()),)
                        calls[self._sent(function, item, shared)] = (item, n_try + 1)
                        continue
                    yield item, result
        finally:
            for future in calls:
                future.cancel()

    def _sent(
        self, function: Callable[..., Any], item: Any, shared: tuple[Any, ...]
    ) -> Future[Any]:
        assert self._executor is not None
        ready, inputs = self._ready(item)
        return self._executor.submit(function, ready, *shared, *inputs)

    def _ready(self, item: Any) -> tuple[Any, tuple[Any, ...]]:
        """Start what an item needs before its call: the item, and other arguments."""
        if not hasattr(item, "started"):
            return item, ()
        ready: tuple[Any, tuple[Any, ...]] = item.started(self.client if self.of_dask else None)
        return ready


def shown(n: int | None, progress: bool, unit: str) -> Any:
    """Make a progress bar of tqdm, if it is wanted and installed; else None."""
    if not progress:
        return None
    try:
        return import_module("tqdm.auto").tqdm(total=n, unit=unit)
    except ImportError:
        return None
