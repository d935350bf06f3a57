"""A slice of the fuzzer of files; the tool runs as many cases as one likes."""

import io
import json
import zipfile

import numpy as np
import pytest

import rpukit as rk
from rpukit.errors import FormatError
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


def test_a_checksum_of_null_is_refused(tmp_path):
    """Files of earlier versions have no checksum; one without a value was not written by us."""
    path = tmp_path / "tile.npz"
    rk.save(path, rk.AnalogTile((2, 3), rk.SoftBounds(), seed=1))
    with zipfile.ZipFile(path) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    header = json.loads(np.load(path)["header.json"].tobytes())
    content = io.BytesIO()
    np.save(content, np.frombuffer(json.dumps({**header, "checksum": None}).encode(), np.uint8))
    with zipfile.ZipFile(path, "w") as zipped:
        for name, text in (members | {"header.json.npy": content.getvalue()}).items():
            zipped.writestr(name, text)
    with pytest.raises(FormatError, match="does not match its checksum"):
        rk.load(path)


def test_an_interrupt_while_a_file_is_written_stays_an_interrupt(tmp_path, monkeypatch):
    def interrupted(member, array, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "close", lambda self: 1 / (self.fp is None))  # as it may
    monkeypatch.setattr(np.lib.format, "write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rk.save(tmp_path / "tile.npz", rk.AnalogTile((2, 3), rk.SoftBounds(), seed=1))
    assert not list(tmp_path.iterdir())


def test_a_seed_names_a_file():
    made = [fuzz_files.damaged(seed, 3, fuzz_files.KINDS) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
