"""A slice of the fuzzer that goes on from files at random points."""

import numpy as np
import pytest

from tools import fuzz_resume


@pytest.mark.parametrize("kind", fuzz_resume.KINDS)
def test_a_saved_object_goes_on_with_the_same_bits(kind):
    for number in range(4):
        text, wrong = fuzz_resume.point(3, number, (kind,))
        assert not wrong, f"{text}: {wrong}"


def test_differences_are_found(monkeypatch):
    def forgetful(own, thing, pickled):
        return own.make()

    monkeypatch.setattr(fuzz_resume, "reloaded", forgetful)
    found = [fuzz_resume.point(3, number, ("trainer",))[1] for number in range(4)]
    assert any("differ" in wrong for wrong in found)


def test_a_seed_names_an_object():
    made = [fuzz_resume.Tile(np.random.default_rng(seed)).text for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
