"""Launches that came before and come again, at the cost of the driver's calls alone.

Most calls of a training step are those of the step before: the same kernels and launch shapes, the
same arrays but for inputs and results. `Again` repeats what `launch.recording` has listed with the
arguments that are named to change: for callers that know of the others that they stay, where
`repeat.Repeats` compares two calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import tune
from rpukit._kernels.arguments import pack
from rpukit._kernels.launch import Launched

_graph_arrays: dict[int, Any] = {}  # a graph goes on using them, and nobody says for how long


def keep_for_graph(*arrays: Any) -> None:
    """Keep arrays that the graph which the current stream records will use."""
    here = {id(a): a for a in arrays if _device.is_cupy(a)}
    if here and _device.free_stream() is None:
        _graph_arrays.update(here)


class Again:
    """Repeats launches; what is not named to change stays as it was, and is kept alive.

    Parameters
    ----------
    launches : sequence of Launched
        On the only GPU and the current stream.
    changing : sequence of str
        Names of parameters whose arguments change from call to call; equal names change together.
    """

    def __init__(self, launches: Sequence[Launched], changing: Sequence[str]) -> None:
        changing_words: dict[str, np.ndarray] = {}
        self._stream = _device.current_stream()
        self._n_change = tune.n_changes()
        self._fixed = []
        self._starts = []
        for variant, grid, block, arguments, shared, early, together in launches:
            words = []
            for parameter, a in zip(variant.parameters, variant.checked(arguments), strict=True):
                word = pack(a).reshape(1)
                if parameter.name in changing:
                    word = changing_words.setdefault(parameter.name, word)
                else:
                    self._fixed.append(a)
                words.append(word)
            start = variant.again(grid, block, words, shared, early=early, together=together)
            self._starts.append(start)
        unused = np.zeros(1, np.uint64)
        self._words = [changing_words.get(name, unused).data for name in changing]

    def may(self) -> bool:
        """Whether the current stream and the tuner's choices are those of the launches."""
        return self._stream == _device.free_stream() and self._n_change == tune.n_changes()

    def __call__(self, *values: int) -> None:
        """Launch with these numbers and addresses of arrays, in the order of `changing`."""
        for word, value in zip(self._words, values, strict=True):
            word[0] = value
        for start in self._starts:
            start(self._stream)
