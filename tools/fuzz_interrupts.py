"""Cut calls short at random places: the object is as before, complete, or says that it is not.

    python tools/fuzz_interrupts.py --cases 4000 --seconds 600 --seed 1
    python tools/fuzz_interrupts.py --kinds tile --seed 1 --case 17

A case draws an object (a tile of any cell, an inference tile, a mapped matrix, a circuit, a
trainer, an estimator, a weight gradient) and a call. It counts the lines of rpukit that the call
passes, then makes the same call on an equal object and raises KeyboardInterrupt before one of
these lines. In a quarter of the cases, an allocation raises MemoryError instead; in another one,
the signal of Ctrl-C is sent before that line, which may cut no object short. Afterwards the state
has to be that before the call, that after it, or that after some step of a loop (such as `fit`),
to the bit; or the next call has to raise `InterruptedCallError`. An object that is as before makes
the call again, and one that is complete makes another one: results have to be those of an object
that was never interrupted.
"""

from __future__ import annotations

import argparse
import collections
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from rpukit import _device  # noqa: E402
from rpukit.errors import InterruptedCallError, RpukitError  # noqa: E402
from tools.interrupt_cases import KINDS, Case, case, state, steps_of  # noqa: E402

PACKAGE = str(Path(rk.__file__).parent)
NEVER = -1
ALLOCATIONS = [
    *((_device, name) for name in ("empty", "zeros", "to_device")),
    *((np, name) for name in ("empty", "zeros", "ones", "full", "array", "concatenate")),
]


class Lines:
    """Counts the lines of rpukit that are run, and raises KeyboardInterrupt before one of them."""

    def __init__(self, at: int = NEVER) -> None:
        self.at, self.n, self.place = at, 0, ""

    def __enter__(self) -> Lines:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            if self.n == self.at:
                self.n += 1
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.interrupt()
            else:
                self.n += 1
        return self._trace

    def interrupt(self) -> None:
        """Raise an exception, as code that knows nothing of the handling of Ctrl-C."""
        raise KeyboardInterrupt


class CtrlC(Lines):
    """Counts the lines of rpukit that are run, and presses Ctrl-C before one of them."""

    def interrupt(self) -> None:
        """Send the signal, whose handler may let it wait."""
        signal.raise_signal(signal.SIGINT)


class Allocations:
    """Counts the allocations of arrays, and lets one of them fail."""

    def __init__(self, at: int = NEVER) -> None:
        self.at, self.n, self.place = at, 0, ""

    def __enter__(self) -> Allocations:
        self._kept = [getattr(place, name) for place, name in ALLOCATIONS]
        for (place, name), function in zip(ALLOCATIONS, self._kept, strict=True):
            setattr(place, name, self._counted(function))
        return self

    def __exit__(self, *_: object) -> None:
        for (place, name), function in zip(ALLOCATIONS, self._kept, strict=True):
            setattr(place, name, function)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def allocate(*args: Any, **kwargs: Any) -> Any:
            self.n += 1
            if self.n == self.at + 1:
                self.place = function.__name__
                raise MemoryError("injected")
            return function(*args, **kwargs)

        return allocate


@contextmanager
def quiet() -> Iterator[None]:
    """Restore what an interrupt inside the handling of interrupts may leave: Ctrl-C's handler."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run(one: Case, watch: type[Lines] | type[Allocations], rng: np.random.Generator) -> str:
    """Cut the call of a case short, and tell what became of the object; raises if it is wrong."""
    whole, seen = one.make(), set[bytes]()
    before = state(whole)
    result = one.call(whole)
    complete = state(whole)
    one.after(whole)
    later = state(whole)
    counted = one.make()
    with watch() as count:
        one.call(counted)
    if count.n == 0:
        return "nothing to cut"
    looped = one.make()
    with steps_of(looped, seen):
        one.call(looped)
    thing, cut = one.make(), watch(int(rng.integers(count.n)))
    raised: BaseException | None = None
    try:
        with cut:
            one.call(thing)
    except (KeyboardInterrupt, MemoryError, RpukitError) as error:
        raised = error
    where = f"{one.text}\n  at {cut.place}, {type(raised).__name__}: {raised}"
    try:
        now = state(thing)
    except InterruptedCallError:
        for call in (one.call, one.after):
            try:
                call(thing)
            except InterruptedCallError:
                continue
            if " load" not in one.text and not one.text.startswith(("Analog", "Circuit")):
                raise AssertionError(f"{where}\n  a later call was not refused") from raised
        assert watch is not CtrlC, f"{where}\n  cut short by Ctrl-C"
        return "refused"
    if now == complete:
        one.after(thing)
        assert state(thing) == later, f"{where}\n  complete, but another call ends elsewhere"
        return "complete"
    assert raised is not None, f"{where}\n  the exception was lost, and the state is another one"
    if now == before:
        again = one.call(thing)
        assert state(thing) == complete, f"{where}\n  as before, but the call ends elsewhere"
        if isinstance(result, np.ndarray):
            assert result.tobytes() == again.tobytes(), f"{where}\n  another result"
        return "as before"
    assert now in seen, f"{where}\n  half changed without a word"
    return "after a step"


def check(
    seed: int, number: int, kinds: list[str], *, kernels: bool = False
) -> tuple[str, str, str]:
    """Run a case; return its kind and way, what became of the object, and the fault or ""."""
    rng = np.random.default_rng([seed, number])
    kind = kinds[int(rng.integers(len(kinds)))]
    watch = (Lines, Lines, CtrlC, Allocations)[int(rng.integers(4))]
    try:
        with quiet(), rk.testing.on_cpu() if kernels else nullcontext():
            return f"{kind} {watch.__name__}", run(case(kind, rng), watch, rng), ""
    except Exception as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        return f"{kind} {watch.__name__}", "FAULT", text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--kernels", action="store_true", help="CUDA sources, run on the CPU")
    given = parser.parse_args()
    if given.kernels:
        from tests.on_cpu import runner

        rk.testing.set_runner(runner.run)
    kinds, start = given.kinds.split(","), time.perf_counter()
    numbers = range(given.cases) if given.case is None else [given.case]
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for number in numbers:
        if time.perf_counter() - start > given.seconds:
            break
        kind, what, fault = check(given.seed, number, kinds, kernels=given.kernels)
        table[kind][what] += 1
        if fault:
            print(f"case {number} of seed {given.seed}, {kind}: {fault}", flush=True)
    for kind in sorted(table):
        print(f"{kind:22}", ", ".join(f"{n} {what}" for what, n in table[kind].most_common()))
    for way in (Allocations, CtrlC, Lines):
        rows = [row for kind, row in table.items() if kind.endswith(way.__name__)]
        print(f"all {way.__name__:18}", dict(sum(rows, collections.Counter())))
    total = sum(table.values(), collections.Counter())
    print(f"{total.total()} cases in {time.perf_counter() - start:.0f} s:", dict(total))
    sys.exit(bool(total["FAULT"]))


if __name__ == "__main__":
    main()
