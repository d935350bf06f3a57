"""Launches that come again: as the calls would make them, with their inputs and numbers."""

import numpy as np
import pytest

from rpukit._kernels import launch, tune
from rpukit._kernels.replay import Replay, Replays
from rpukit.testing import assert_same_bits
from tests.machinery.test_launch import KERNEL, arguments_for, xp  # noqa: F401

X = np.arange(10, dtype=np.float32)


class Twice:
    """``y = a (a x + first) + first`` by two launches; what is between them is not kept."""

    def __init__(self, space):
        self.xp, self.replays, self.n_call = space, Replays(), 0
        self.y = space.zeros(10, np.float32)

    def __call__(self, x, a, first, small=4):
        x = self.xp.asarray(x)

        def call():
            self.n_call += 1
            between = self.xp.empty(10, np.float32)
            for source, to in ((x, between), (between, self.y)):
                numbers = {"a": a, "first": first, "big": 0, "wide": 0, "small": small}
                KERNEL.launch((1,), (32,), arguments_for(self.xp, x=source, y=to, **numbers))

        self.replays.run("key", (x,), {"a": a, "first": first}, call)
        return self.y.get() if hasattr(self.y, "get") else self.y.copy()


def expected(x, a, first, small=4):
    a, b = np.float32(a), np.float32(first + small)
    return a * (a * x + b) + b


def test_later_calls_are_launched_alone(xp):  # noqa: F811
    twice = Twice(xp)
    for k in range(6):
        x, numbers = X[::-1] * k, (0.5 + k, 3 * k)
        assert_same_bits(twice(x, *numbers), expected(x, *numbers))
    assert twice.n_call == 2
    tune._drop_decisions()  # then the call may pick other variants
    for k in range(3):
        assert_same_bits(twice(X, 2.0, k), expected(X, 2.0, k))
    assert twice.n_call == 4


def test_again_with_the_numbers_before(xp):  # noqa: F811
    x, y = xp.asarray(X), xp.zeros(10, np.float32)
    numbers = {"a": 2.0, "first": 1, "big": 0, "wide": 0, "small": 4}
    with launch.recording() as launches:
        KERNEL.launch((1,), (32,), arguments_for(xp, x=x, y=y, **numbers))
    replay = Replay.by_name(launches, ("a",))
    for given in ((), (0.5,)):
        if given:
            replay(*given)
        y[:] = 0
        replay.again()
        a = np.float32(given[0] if given else 2.0)
        assert_same_bits(y.get() if hasattr(y, "get") else y, a * X + np.float32(5))


def test_numbers_that_were_not_named_must_stay(xp):  # noqa: F811
    twice = Twice(xp)
    for k in range(4):
        assert_same_bits(twice(X, 0.5, 1, small=k), expected(X, 0.5, 1, small=k))
    assert twice.n_call == 4


def test_a_failed_call_is_not_remembered(xp):  # noqa: F811
    replays, x = Replays(), xp.zeros(10, np.float32)

    def fails():
        KERNEL.launch((1,), (32,), arguments_for(xp, x=x))
        raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError, match=r"^$"):
            replays.run("key", (x,), {}, fails)
    assert launch._here.launches is None
