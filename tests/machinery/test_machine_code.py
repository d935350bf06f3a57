"""Machine code of mirrors in the cache folder: found again, never stale, never trusted blindly."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import rpukit
from rpukit import _cache
from rpukit._exact import machine_code, stamp
from tests.machinery.fresh import FreshProcesses

PACKAGE = Path(rpukit.__file__).parent
# What every script says at the end: its result, and which functions were compiled.
HEAD = """
import json, sys
from numba.core import event
import numpy as np
from rpukit._exact import twins
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
def end(*results):
    names = [e.data["dispatcher"].py_func.__name__ for _, e in compiled.buffer if e.is_start]
    print(json.dumps([[str(r) for r in results], names]))
"""
SIGMOID = "from rpukit._exact.math import sigmoid32\nend(sigmoid32(np.float32(0.5)))"
TWINS = """
kinds = (np.float32, np.float64)
parts = [twins.mirror("rpukit.analog._steps", kind).part for kind in kinds]
end(*(part(0.1, (0.0, 3.0)) for part in parts))
"""
MAPPED = """
from rpukit.elementwise._mirror import function, math_map
out = np.zeros(2, np.float32)
math_map(0, 2, function("sqrt", 32), np.array([4, 9], np.float32), out)
end(*out)
"""
FROM_OUTSIDE = """
import numba
from rpukit.elementwise._mirror import math_map
@numba.njit
def own(x):
    return x + np.float32(NUMBER)
out = np.zeros(2, np.float32)
math_map(0, 2, own, np.array([4, 9], np.float32), out)
end(*out)
"""

CIRCUIT = """
import rpukit as rk
pc = rk.Circuit(rk.circuits.hmm(4, 3, 5), seed=0)
x = np.zeros((2, 4), int)
end(pc.log_likelihood(x).shape, pc.em_step(x).shape, "scipy.linalg" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RPUKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module", autouse=True)
def processes(tmp_path_factory):
    global fresh
    with FreshProcesses(tmp_path_factory.mktemp("processes")) as fresh:
        yield


def start(script, package=PACKAGE, **variables):
    return fresh.start(HEAD + script, package.parent, **variables)


def finish(process):
    """Results of a script, what it compiled, and what it said."""
    status, out, said = fresh.finish(process)
    assert status == 0, said
    return *json.loads(out), said


def run(script, package=PACKAGE, **variables):
    return finish(start(script, package, **variables))


def run_anew(script):
    """Run a script in an interpreter of its own, not in a fork."""
    command = [sys.executable, "-c", HEAD + script]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return *json.loads(done.stdout), done.stderr


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_second_process_compiles_nothing(folder):
    first, compiled, said = run_anew(MAPPED)
    assert first == ["2.0", "3.0"]
    assert {"math_map", "sqrt32"} <= set(compiled)
    assert said.count("compiling") == 1 and str(folder) in said and "once" in said
    assert run_anew(MAPPED) == (first, [], "")


def test_the_first_step_of_a_circuit_imports_no_blas():
    """SciPy's takes longer to import than the step: functions of arrays as `max` ask for it."""
    run_anew(CIRCUIT)
    assert run_anew(CIRCUIT) == (["(2,)", "(2,)", "False"], [], "")


def test_a_changed_callee_is_never_missed(folder, tmp_path):
    copy = tmp_path / "rpukit"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    first, compiled, _ = run(SIGMOID, copy)
    assert {"sigmoid32", "exp32"} <= set(compiled)
    assert run(SIGMOID, copy)[:2] == (first, [])
    source = copy / "_exact" / "math.py"
    text = source.read_text()
    deep = "    half = i4(j >> i4(1))\n    low = u2f("  # of scale32, which exp32 calls
    assert text.count(deep) == 1
    source.write_text(text.replace(deep, "    j = i4(j + i4(1))\n" + deep))
    changed, compiled, _ = run(SIGMOID, copy)
    assert changed != first
    assert {"sigmoid32", "exp32"} <= set(compiled)
    source.write_text(text)
    assert run(SIGMOID, copy)[:2] == (first, [])


def test_a_source_that_changes_while_the_process_runs_is_not_kept(folder, tmp_path):
    copy = tmp_path / "rpukit"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    steps = copy / "analog" / "_steps.py"
    script = f"""
import rpukit._exact.math
with open({str(steps)!r}, "a") as file:
    file.write("# a remark\\n")
import rpukit.analog._steps
"""
    run(script + SIGMOID, copy)
    assert not files(folder)


def test_twins_have_entries_of_their_own(folder):
    """Both are called with float64, so they differ by nothing but their module."""
    expected = [str(np.float32(0.1 / 3.0)), str(0.1 / 3.0)]
    for known in (False, True):
        results, compiled, _ = run(TWINS)
        assert [str(np.float32(results[0])), results[1]] == expected
        assert results[0] != results[1]
        assert compiled.count("part") == (0 if known else 2)


def test_parts_of_others_can_be_called(folder):
    """exp32 is compiled as a part of sigmoid32 first, then for Python, then found by both."""
    script = """
from rpukit._exact.math import exp32, sigmoid32
x = np.float32(0.5)
end(sigmoid32(x), exp32(x), exp32(x), sigmoid32(x), *map(len, (exp32.overloads, exp32._parts)))
"""
    results, compiled, _ = run(script)
    assert results[0] == results[3] and results[1] == results[2] and results[4:] == ["1", "0"]
    assert abs(float(results[1]) - np.exp(0.5)) < 1e-6
    assert compiled.count("exp32") == 2
    assert len(files(folder)) == 2
    assert run(script)[:2] == (results, [])


def test_functions_from_outside_are_never_stale(folder):
    for number in (1, 2, 1):
        results, compiled, _ = run(FROM_OUTSIDE.replace("NUMBER", str(number)))
        assert results == [str(4.0 + number), str(9.0 + number)]
        assert "math_map" in compiled


def test_two_processes_at_once(folder):
    both = [start(SIGMOID), start(SIGMOID)]
    (first, _, _), (second, _, _) = map(finish, both)
    assert first == second
    assert run(SIGMOID)[:2] == (first, [])
    assert not [path for path in files(folder) if path.name.startswith(".")]


def test_a_damaged_file_is_written_anew(folder):
    first, compiled, _ = run(SIGMOID)
    kept = files(folder)
    for k, path in enumerate(kept):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if k % 2 else data[: len(data) // 3])
    assert run(SIGMOID)[:2] == (first, compiled)
    for path in kept:
        path.write_bytes(b"")
    assert run(SIGMOID)[:2] == (first, compiled)
    assert run(SIGMOID)[:2] == (first, [])


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    results, compiled, said = run(SIGMOID, RPUKIT_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert results and compiled
    assert said.count("cannot be made") == 1 and "for this process" in said
    assert run(SIGMOID, RPUKIT_CACHE_DIR="")[:2] == (results, compiled)


def test_a_folder_that_cannot_be_written_is_read(folder):
    first, _, _ = run(MAPPED)
    kept = {path: path.read_bytes() for path in files(folder)}
    locked = """
import tempfile
def fail(*args, **more):
    raise OSError("read-only file system")
tempfile.mkstemp = fail
"""
    assert run(locked + MAPPED) == (first, [], "")
    _, compiled, said = run(locked + SIGMOID)
    assert compiled and said.count("read-only file system") == 1
    assert {path: path.read_bytes() for path in files(folder)} == kept


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_folder_of_others_is_not_used(folder, tmp_path):
    first, compiled, _ = run(SIGMOID)
    place = folder / machine_code.FOLDER
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o777)
    results, again, said = run(SIGMOID)
    assert (results, again) == (first, compiled) and said.count("is not used") == 1
    place.chmod(0o700)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert run(SIGMOID)[1] == compiled


def test_old_stamps_are_removed(folder):
    for number in range(6):
        assert _cache.private("cpu", str(number), make=True, keep=3) == folder / "cpu" / str(
            number
        )
        os.utime(folder / "cpu" / str(number), (number + 1, number + 1))
    assert sorted(path.name for path in (folder / "cpu").iterdir()) == ["3", "4", "5"]
    assert _cache.private("other", "1", make=False, keep=3) is None


def test_settings_of_numba_are_part_of_the_stamp(monkeypatch):
    stamps = {stamp._whole.__wrapped__()}
    for name, value in (("OPT", 1), ("CPU_NAME", "generic"), ("LOOP_VECTORIZE", 0)):
        monkeypatch.setattr(f"numba.config.{name}", value)
        stamps.add(stamp._whole.__wrapped__())
    monkeypatch.setattr("numba.__version__", "0")
    stamps.add(stamp._whole.__wrapped__())
    assert len(stamps) == 5


def test_all_functions_of_mirrors_are_kept():
    for path in stamp.sources():
        name = ".".join(Path(path).relative_to(PACKAGE.parent).with_suffix("").parts)
        for member in vars(import_module(name.removesuffix(".__init__"))).values():
            if isinstance(member, CPUDispatcher):
                assert isinstance(member._cache, machine_code.MachineCode), member


def test_no_mirror_assigns_an_array_to_a_slice():
    """Numba would compile the message of a shape error with it: see ``rpukit._exact.lines``."""
    one = np.ones((2, 2), np.float32)
    rpukit.det_gemm(one, one)  # earlier tests have compiled most mirrors; this one at least
    made = list(machine_code._place().glob("[!.]*"))  # others may be being written
    assert made
    assert not [path.name for path in made if b"cannot assign slice" in path.read_bytes()]
