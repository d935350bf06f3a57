"""A slice of the fuzzer of files; the tool runs as many cases as one likes."""

import pytest

from tools import fuzz_files


@pytest.mark.parametrize("kind", fuzz_files.KINDS)
def test_damaged_files_are_refused_or_give_the_same_state(kind):
    own = fuzz_files.source(kind)
    assert fuzz_files.outcome(kind, own.data, may_differ=False, room=None) == fuzz_files.EQUAL
    found = []
    for number in range(12):
        content, may_differ = fuzz_files.damaged(11, number, (kind,))[2:]
        found.append(fuzz_files.outcome(kind, content, may_differ, room=None))
    assert not [one for one in found if one.startswith(fuzz_files.FAILED)]
    assert found.count(fuzz_files.REFUSED) > 4


def test_failures_are_found(monkeypatch):
    own = fuzz_files.source("table")
    monkeypatch.setattr(own, "load", lambda path: {}["x"])
    assert "KeyError" in fuzz_files.outcome("table", own.data, may_differ=False, room=None)
    monkeypatch.setattr(own, "load", lambda path: ([], {}))
    assert "another state" in fuzz_files.outcome("table", own.data, may_differ=False, room=None)
    monkeypatch.setattr(own, "load", lambda path: open(path).closed)  # noqa: SIM115
    assert "ResourceWarning" in fuzz_files.outcome("table", own.data, may_differ=True, room=None)


def test_a_seed_names_a_file():
    made = [fuzz_files.damaged(seed, 3, fuzz_files.KINDS) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
