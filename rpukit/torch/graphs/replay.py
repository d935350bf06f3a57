"""A captured step: its graph, and the words that its launches take before each replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rpukit._kernels.graph_nodes import nodes_of, word_of
from rpukit.torch._torch import torch
from rpukit.torch.graphs.pattern import Pattern, Word
from rpukit.torch.graphs.recording import Recording, Tiles

__all__ = ["CaptureFault", "GraphReplay", "capture"]

Tensor = Any


class CaptureFault(Exception):
    """Why a step cannot be replayed; the caller goes on without a graph."""


class GraphReplay:
    """Replay of a captured step with the clocks of now.

    Parameters
    ----------
    graph : torch.cuda.CUDAGraph
    tiles : Tiles
    pattern : Pattern
    recording : Recording
        Of the capture.
    result : Tensor
        What the step returned.
    """

    def __init__(
        self, graph: Any, tiles: Tiles, pattern: Pattern, recording: Recording, result: Tensor
    ) -> None:
        self._graph, self._tiles, self.result = graph, tiles, result
        self._advance = pattern.advance
        self._exec = int(graph.raw_cuda_graph_exec())
        self._values: dict[Word, list[np.ndarray]] = {}
        self._updates: list[Callable[[int], None]] = []
        self._calls = sorted({w.tile for words in pattern.words for w in words.values()})
        self._kept = _lasting(pattern, recording)
        nodes = nodes_of(int(graph.raw_cuda_graph()), recording.launches)
        if nodes is None:
            raise CaptureFault("the nodes of the graph are not the launches of the step")
        given = zip(recording.launches, pattern.words, strict=True)
        launched = [(one, words) for one, words in given if min(one.grid) > 0]
        for node, (one, words) in zip(nodes, launched, strict=True):
            if words:
                slots = {j: word_of(one, j) for j in words}
                for j, word in words.items():
                    self._values.setdefault(word, []).append(slots[j])
                self._updates.append(node.updater(slots))
        moving = {(k, m, name) for k, m, name, _ in pattern.advance}
        self._still = [
            (memory, name, value)
            for k, memories in enumerate(tiles.memories)
            for m, memory in enumerate(memories)
            for name, value in memory.items()
            if (k, m, name) not in moving
        ]
        self._fresh = True  # the graph has the arguments of the step that was captured

    def fits(self) -> bool:
        """Whether the tiles are as in the capture but for their clocks: not programmed since."""
        for memory, name, value in self._still:
            now = memory.get(name)
            if now is not value and (isinstance(value, np.ndarray) or now != value):
                return False
        return True

    def __call__(self) -> Tensor:
        """Replay the step; the clocks of the tiles move."""
        if not self._fresh:
            self._prepare()
        self._fresh = False
        self._graph.replay()
        return self.result

    def _prepare(self) -> None:
        tiles, numbers = self._tiles, {}
        for k in self._calls:
            guard = tiles.guards[k]
            numbers[k] = guard.number()
            guard.log("an input of a captured step")
        for word, slots in self._values.items():
            value = numbers[word.tile] if word.memory < 0 else word.value(tiles.memories)
            for slot in slots:
                slot[0] = value
        for update in self._updates:
            update(self._exec)
        for k, m, name, n in self._advance:
            tiles.memories[k][m][name] += n


def capture(step: Callable[[], Tensor], tiles: Tiles, pattern: Pattern) -> GraphReplay:
    """Capture a step that follows a pattern.

    Parameters
    ----------
    step : callable
        Runs the step and returns its result.
    tiles : Tiles
    pattern : Pattern

    Returns
    -------
    GraphReplay
        Its first call is the step that was captured.

    Raises
    ------
    CaptureFault
        The clocks are those of before.
    """
    cuda = torch.cuda
    if not hasattr(cuda.CUDAGraph, "raw_cuda_graph_exec"):
        raise CaptureFault(f"PyTorch {torch.__version__} does not give its graphs")
    recording = Recording(tiles)
    try:
        graph = cuda.CUDAGraph(keep_graph=True)
        with recording.running(), cuda.graph(graph, capture_error_mode="relaxed"):
            result = step()
        graph.instantiate()
        fault = pattern.predicts(recording)
        if fault:
            raise CaptureFault(fault)
        return GraphReplay(graph, tiles, pattern, recording, result)
    except Exception as error:
        tiles.restore(recording.before)
        if isinstance(error, CaptureFault):
            raise
        first = error.__context__ or error  # the end of a capture that failed raises, too
        raise CaptureFault(f"{type(first).__name__}: {first}") from error


def _lasting(pattern: Pattern, recording: Recording) -> list[Any]:
    """List the arrays that the steps share, which have to stay where they are."""
    found = []
    places = zip(recording.launches, pattern.last.addresses(), recording.addresses(), strict=True)
    for one, before, now in places:
        same = zip(one.args, before, now, strict=True)
        found += [a for a, was, at in same if at is not None and at == was]
    return found
