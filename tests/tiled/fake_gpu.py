"""A stand-in for CuPy with streams that run in a random order: only events keep them in step."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from rpukit import _device


class Event:
    """Done once what its stream was given before it is done."""

    def __init__(self, **_):
        self.done = True

    def record(self, stream):
        self.done = False
        stream.give(self._reach)

    def _reach(self):
        self.done = True


class Stream:
    """A queue of actions; `world` decides whose turn it is."""

    def __init__(self, world):
        self._world, self._queue, self.ptr = world, [], len(world.streams)
        world.streams.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def give(self, act, ready=lambda: True):
        self._queue.append((ready, act))

    def record(self):
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.give(lambda: None, lambda: event.done)

    def turn(self):
        """Do the first action, if it may be done."""
        if self._queue and self._queue[0][0]():
            self._queue.pop(0)[1]()
            return True
        return False

    def synchronize(self):
        while self._queue:
            self._world.step()


class Usual:
    """The stream of the caller, which those of a program do not wait for."""

    def __init__(self):
        self.tasks = []

    def synchronize(self):
        while self.tasks:
            self.tasks.pop(0)()


class World:
    """What `rpukit.tiled.gpu` needs of CuPy and of `rpukit._device`."""

    def __init__(self, seed):
        self.streams, self._rng = [], np.random.default_rng(seed)
        self.usual = Usual()
        error = type("CUDARuntimeError", (RuntimeError,), {})
        runtime = SimpleNamespace(
            memcpyAsync=self._copy, memcpy2DAsync=self._copy_rows, CUDARuntimeError=error
        )
        self.xp = SimpleNamespace(
            empty=np.empty,
            asarray=self._table,
            cuda=SimpleNamespace(
                Device=lambda _: nullcontext(),
                Stream=lambda **_: Stream(self),
                get_current_stream=lambda: self.usual,
                Event=Event,
                get_elapsed_time=lambda begin, end: 2.0 * (begin.done and end.done),
                alloc_pinned_memory=bytearray,
                memory=SimpleNamespace(OutOfMemoryError=MemoryError),
                runtime=runtime,
            ),
        )
        self.device = SimpleNamespace(
            gpu_count=lambda: 0,
            parse_device=lambda _: SimpleNamespace(index=0),
            cupy=lambda: self.xp,
            address=_device.address,
        )

    def step(self):
        """Let a stream have its turn: tiles as soon as they can, copies late, or the other way."""
        order = self._rng.permutation(len(self.streams))
        if not any(self.streams[k].turn() for k in order):
            raise AssertionError("the streams wait for one another")

    def _table(self, values):
        """Copy numbers to the GPU: they are there once the usual stream is waited for."""
        table = np.zeros_like(values)
        self.usual.tasks.append(lambda: np.copyto(table, values))
        return table

    def _copy(self, target, source, size, kind, stream):
        self.streams[stream].give(lambda: ctypes.memmove(target, source, size))

    def _copy_rows(self, target, to_step, source, from_step, width, height, kind, stream):
        def act():
            for row in range(height):
                ctypes.memmove(target + row * to_step, source + row * from_step, width)

        self.streams[stream].give(act)

    def defer(self, executor):
        """Give tiles to the stream of the core instead of computing them at once."""
        core = executor._core

        def later(act):
            return lambda: core.give(act)

        executor._ready = [
            [(kind, token, later(act) if kind == "compute" else act) for kind, token, act in steps]
            for steps in executor._ready
        ]
