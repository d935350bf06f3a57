"""Loops of generated C: steps that repeat with addresses that go on evenly are written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Step", "depth_of", "looped", "size_of"]

_MOST_STEPS = ((8, 32, 96), (96, 96))  # of the body of a loop: two tries, in passes
_DEPTH = 3  # of loops within loops
_MOST_TURNS = (1 << 14) - 1
_HEAD = 3  # words ahead of a body
_BITS = 16  # addresses that a word of bits speaks of
_AHEAD = 4  # a loop that begins this near may be better


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a program, or a loop over several.

    Parameters
    ----------
    key : tuple
        What it does, without its addresses.
    at : tuple of int
        Addresses in the order of the words, in units of the tables.
    far : tuple of bool
        Whether an address takes two words.
    words : int
    lines : tuple of str
    depth : int
        Of loops within.
    about : str
        Comment ahead of it.
    """

    key: tuple[object, ...]
    at: tuple[int, ...]
    far: tuple[bool, ...]
    words: int
    lines: tuple[str, ...]
    depth: int = 0
    about: str = ""


def size_of(steps: Sequence[Step]) -> int:
    """Count the words of a program."""
    return sum(step.words for step in steps)


def depth_of(steps: Sequence[Step]) -> int:
    """Find how deep loops are nested."""
    return max((step.depth for step in steps), default=0)


def looped(steps: Sequence[Step]) -> list[Step]:
    """Replace repeated steps by loops, and repeated loops by loops of loops.

    Parameters
    ----------
    steps : sequence of Step

    Returns
    -------
    list of Step
        They make the same copies, waits and tiles in the same order.
    """
    ways = []
    for longest in _MOST_STEPS:
        found = list(steps)
        for most in longest:
            more = list(_pass(found, most, _DEPTH))
            found = more if size_of(more) < size_of(found) else found
        ways.append(found)
    return min(ways, key=size_of)


def _pass(steps: Sequence[Step], most: int, depth: int) -> Iterator[Step]:
    """Write loops of at most so many steps, in at most so many loops around each other."""
    gain, period, turns = _repeats(steps, most)
    at = 0
    while at < len(steps):
        made, n = None, int(period[at] * turns[at])
        if gain[at] > 0 and not (gain[at + 1 : at + _AHEAD] > gain[at]).any():
            k = int(period[at])
            made = _loop(steps[at : at + k], steps[at + k : at + 2 * k], int(turns[at]), depth)
        if made is None or made.words >= size_of(steps[at : at + n]):
            yield steps[at]
            at += 1
        else:
            yield made
            at += n


def _loop(body: Sequence[Step], following: Sequence[Step], turns: int, depth: int) -> Step | None:
    """Make the loop over a body, whose addresses go on as they do to the steps that follow."""
    if depth > 1 and len(body) > 1:  # loops within, if the next turn has the same
        inner, other = (list(_pass(own, len(body) // 2, depth - 1)) for own in (body, following))
        if [one.key for one in inner] == [one.key for one in other]:
            body, following = inner, other
    if depth_of(body) >= depth:
        return None
    at = tuple(a for step in body for a in step.at)
    far = tuple(f for step in body for f in step.far)
    ahead = (a for step in following for a in step.at)
    steps = tuple(b - a for a, b in zip(at, ahead, strict=True))
    deltas = list(_deltas(steps, far))
    inside = size_of(body)
    if max(inside, len(deltas)) >= 1 << 16:
        return None
    lines = [f"    LOOP({turns}, {inside}, {len(deltas)}),"]
    for one in body:
        lines += [f"    {line}" for line in ((one.about,) if one.about else ()) + one.lines]
    for k in range(0, len(deltas), 16):
        lines.append(f"        {', '.join(map(str, deltas[k : k + 16]))},")
    key = ("loop", turns, tuple(one.key for one in body), steps)
    words = _HEAD + inside + len(deltas)
    return Step(key, at, far, words, tuple(lines), 1 + depth_of(body))


def _deltas(steps: Sequence[int], far: Sequence[bool]) -> Iterator[int]:
    """Write how far addresses go on: a bit for each, then those that move."""
    for k in range(0, len(steps), _BITS):
        part = list(zip(steps[k : k + _BITS], far[k : k + _BITS], strict=True))
        yield sum(1 << j for j, (step, _) in enumerate(part) if step)
        for step, wide in part:
            if step:
                yield step & 0xFFFF
                if wide:
                    yield step >> 16 & 0xFFFF


def _repeats(steps: Sequence[Step], longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the best loop that begins at each step: words saved at least, steps, turns."""
    n = len(steps)
    numbers: dict[object, int] = {}
    kinds = np.array([numbers.setdefault(step.key, len(numbers)) for step in steps], np.int64)
    most = max((len(step.at) for step in steps), default=0)
    places = np.zeros((n, most), np.int64)
    for k, step in enumerate(steps):
        places[k, : len(step.at)] = step.at
    words = np.cumsum([0, *(step.words for step in steps)])
    gain, period, turns = (np.zeros(n, np.int64) for _ in range(3))
    here = np.arange(n)
    for length in range(1, min(longest, n // 2) + 1):
        same = np.zeros(n, bool)
        same[: n - length] = kinds[:-length] == kinds[length:]
        even = np.zeros(n, bool)  # the same again, as far away once more
        first = np.flatnonzero(same[: max(n - 2 * length, 0)])
        first = first[same[first + length]]
        once = places[first + length] - places[first]
        even[first] = (places[first + 2 * length] - places[first + length] == once).all(1)
        runs = np.minimum(_run(same) // length, 1 + _run(even) // length)
        count = np.minimum(np.where(runs > 0, 1 + runs, 1), _MOST_TURNS)
        body = words[np.minimum(here + length, n)] - words[here]
        saved = np.where(count > 1, (count - 1) * body - _HEAD, 0)
        better = saved > gain
        gain[better], turns[better], period[better] = saved[better], count[better], length
    return gain, period, turns


def _run(true: np.ndarray) -> np.ndarray:
    """Count how many are true from each place on."""
    n = len(true)
    false = np.where(true, n, np.arange(n))
    return np.minimum.accumulate(false[::-1])[::-1] - np.arange(n)
