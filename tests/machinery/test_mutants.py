"""The mutants of kernels and mirrors: what is edited, what is left out, what is equivalent."""

import ctypes
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np

from rpukit._kernels import Kernel
from rpukit.testing import on_cpu
from tests.on_cpu import runner

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutant_carry  # noqa: E402
import mutant_users  # noqa: E402
import mutant_verdicts  # noqa: E402
import mutants  # noqa: E402
import mutate  # noqa: E402
from mutant_switches import PRELUDE, switched  # noqa: E402

QUICK = ("pulse_trains", "random_fill", "tiled_conv")
KERNEL = """\
#include "rk_types.cuh"
template <int N> struct Few { int n; };
extern "C" __global__ void some(u64 n, u64 first_sample, const float *x, const int *status) {
    if (*status || threadIdx.x >= n) return;
    __syncthreads();  // < > are no code here
#ifdef RK_ON_CPU
    if (n > 3) __syncthreads();
#else
    if (n > 4) __syncthreads();
#endif
    rk_copies_left<ST - 2>();
    for (int k = 0; k < 9; ++k) sum = rk_fma(x[k], f(x, k), sum);
}
"""


def edits(text, tmp_path, name="some.cu"):
    (tmp_path / name).write_text(text)
    if name.endswith(".py"):
        made = mutants.of_mirror(tmp_path, name, {"some"})
    else:
        made = mutants.of_source(tmp_path, name)
    return [(m.line, m.kind, m.after) for m in made]


def test_edits_of_a_kernel(tmp_path):
    found = edits(KERNEL, tmp_path)
    assert {line for line, _, _ in found} == {3, 4, 5, 11, 12}
    assert (4, "bounds", "if (*status || threadIdx.x > n) return;") in found
    assert (4, "status", "if (threadIdx.x >= n) return;") in found
    assert (5, "barriers", ";  // < > are no code here") in found
    assert [after for line, _, after in found if line == 11] == [
        ";",
        "rk_copies_left<ST - 2 + 1>();",
    ]
    assert [after for line, kind, after in found if line == 12 and kind == "sums"] == [
        "for (int k = (9) - 1; k >= (0); --k) sum = rk_fma(x[k], f(x, k), sum);",
        "for (int k = 0; k < 9; ++k) sum = ((x[k]) * (f(x, k)) + (sum));",
    ]
    assert [kind for line, kind, after in found if "u32 first_sample" in after] == ["counters"]


def test_edits_of_a_mirror(tmp_path):
    text = '''def other(n):
    return n > 1


def some(n):
    """Sum, if n > 2."""
    for k in range(n):
        if k > 3:
            s = fma32(a, b, s)
'''
    assert edits(text, tmp_path, "some.py") == [
        (7, "sums", "for k in range(n - 1, -1, -1):"),
        (8, "bounds", "if k >= 3:"),
        (9, "sums", "s = f4(f4((a) * (b)) + (s))"),
    ]


def test_an_edit_is_made_and_undone(tmp_path):
    (tmp_path / "some.cu").write_text(KERNEL)
    for mutant in mutants.of_source(tmp_path, "some.cu"):
        assert mutant.write(tmp_path) == KERNEL
        edited = (tmp_path / "some.cu").read_text()
        differ = [
            (a, b) for a, b in zip(KERNEL.split("\n"), edited.split("\n"), strict=True) if a != b
        ]
        assert [(a.strip(), b.strip()) for a, b in differ] == [(mutant.before, mutant.after)]
        (tmp_path / "some.cu").write_text(KERNEL)


def test_equivalents_fit_the_sources():
    """Each entry is of a line that is there, edited as it says, and has a reason."""
    known = mutants.Equivalents(mutate.LIST)
    assert known.stale([m for m, _ in mutate.collected()]) == []
    assert all(len(entry["reason"]) > 20 for entry in known.entries)


def test_no_equivalent_was_noticed():
    """What a case or a test once noticed does not compute the same, whatever its reason says."""
    known, verdicts = mutants.Equivalents(mutate.LIST), mutant_verdicts.Verdicts()
    alive = (None, mutant_verdicts.SURVIVED, mutant_verdicts.SAME)
    found = [m for m, _ in mutate.collected() if known.reason(m) and verdicts.get(m) not in alive]
    assert [(m.name, verdicts.get(m)) for m in found] == []


def test_an_entry_that_fits_nothing_is_found(tmp_path):
    (tmp_path / "some.cu").write_text(KERNEL)
    made = mutants.of_source(tmp_path, "some.cu")
    entry = '[[mutant]]\nfile = "some.cu"\nline = "{}"\n{} = "{}"\nreason = "none"\n'
    above = "if (*status || threadIdx.x >= n) return;"
    for line, beside, text, stale in (
        ("__syncthreads();", "above", above, 0),
        ("__syncwarp();", "above", above, 1),
        ("__syncthreads();", "above", "other();", 1),
        ("__syncthreads();", "below", "#ifdef RK_ON_CPU", 0),
        ("__syncthreads();", "below", "other();", 1),
    ):
        (tmp_path / "list.toml").write_text(entry.format(line, beside, text))
        known = mutants.Equivalents(tmp_path / "list.toml")
        assert len(known.stale(made)) == stale
        assert [m.line for m in made if known.reason(m)] == [5] * (1 - stale)


def numbered(text, tmp_path):
    (tmp_path / "some.cu").write_text(text)
    return list(enumerate(mutants.of_source(tmp_path, "some.cu"), 1))


def test_one_source_holds_all_mutants(tmp_path):
    text, held = switched(KERNEL, numbered(KERNEL, tmp_path))
    kinds = {m.kind for k, m in numbered(KERNEL, tmp_path) if k not in held}
    assert kinds == {
        "counters",
        "addresses",
    }  # other types of variables, for which there is no run
    assert "if ((!(*status && rk_now<" in text
    assert "{ if (!rk_now<" in text
    assert "rk_copies_left<ST - 2 + 1>(); else rk_copies_left<ST - 2>(); }" in text


SMALL = """\
#include "rk_types.cuh"
extern "C" __global__ void small(int n, const float *x, float *y) {
    __shared__ float shared[64];
    int i = threadIdx.x;
    shared[47 - i] = x[i];
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum = __fmaf_rn(x[k], shared[k + 1], sum);
    if (i <= 3 && x[i] > x[i + 1]) sum += x[n - 1];
    y[i] = sum;
}
"""


def test_a_number_is_the_edit(tmp_path, monkeypatch):
    """Each mutant gives the bits that it gives when it is compiled alone."""
    edits = [(k, m) for k, m in numbered(SMALL, tmp_path) if m.kind != "addresses"]
    text, held = switched(SMALL, edits)
    assert held == {k for k, _ in edits}
    (tmp_path / "small.cu").write_text(SMALL)
    x = np.random.default_rng(0).uniform(0, 1, 64).astype(np.float32)

    def results(source, number):
        (tmp_path / "now").mkdir(exist_ok=True)
        path = tmp_path / "now" / "small.cu"
        path.write_text(source)
        kernel, y = Kernel("small", path=path), np.zeros(48, np.float32)
        if number is not None:
            library = runner.library(kernel.variant())
            ctypes.c_int.in_dll(library, "rk_mutant").value = number
        with on_cpu(1):
            kernel.launch((1,), (48,), (40, x, y))
        return y.tobytes()

    whole = runner.text_of
    alone = {0: results(SMALL, None)}
    for k, m in edits:
        lines = SMALL.split("\n")
        lines[m.line - 1] = "    " + m.after
        alone[k] = results("\n".join(lines), None)
    monkeypatch.setattr(runner, "text_of", lambda v: whole(v).replace("\n", f"\n{PRELUDE}", 1))
    assert {k: results(text, k) for k in alone} == alone
    assert len(set(alone.values())) > 5


def test_verdicts_are_kept_for_the_same_source(tmp_path, monkeypatch):
    monkeypatch.setattr(mutant_verdicts, "ROOT", tmp_path)
    text = KERNEL.replace("#include", "// ")
    (tmp_path / "some.cu").write_text(text)
    made = mutants.of_source(tmp_path, "some.cu")
    kept = mutant_verdicts.Verdicts(tmp_path / "verdicts.txt")
    for mutant, by in zip(made, ("some a-case", "", "some a-case"), strict=False):
        kept.set(mutant, by)
    kept.write()
    mutant_verdicts.hash_of.cache_clear()
    again = mutant_verdicts.Verdicts(tmp_path / "verdicts.txt")
    known = [again.get(mutant) for mutant in made[:4]]
    assert known == ["some a-case", mutant_verdicts.SURVIVED, "some a-case", None]
    (tmp_path / "some.cu").write_text(text + "// more\n")
    mutant_verdicts.hash_of.cache_clear()
    assert again.get(made[0]) is None
    mutant_verdicts.hash_of.cache_clear()


def test_verdicts_of_functions_that_stay_are_carried(tmp_path):
    one, two = "int one() {\n    return 1;\n}\n", "int two() {\n    return 2;\n}\n"
    before, after = tmp_path / "before.cuh", tmp_path / "after.cuh"
    before.write_text(one + two)
    after.write_text("// more\n" + two + one.replace("1;", "3;"))
    own = {"2:4-10": "survived", "5:4-10": "decay large"}
    assert mutant_carry.carried(before, after, own) == {"3:4-10": "decay large"}


def test_kernels_that_reach_a_line_of_a_header():
    path = ROOT / "kernels_cu" / "include" / "circuit_rows.cuh"
    lines = path.read_text().split("\n")
    line = next(k for k, text in enumerate(lines, 1) if "whole = sum" in text)
    assert mutant_users.users("circuit_rows.cuh", line) == ("leaf_posterior", "soft_posterior")


def test_a_random_slice_is_killed(tmp_path):
    """Other mutants whenever a source changes; run by hand, `tools/mutate.py` has them all.

    Of kernels that compile quickly, and of kinds that their golden cases show.
    """
    sources = sorted((ROOT / "kernels_cu").glob("*.cu"))
    seed = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:8]
    command = [sys.executable, "tools/mutate.py", "--seed", str(int(seed, 16)), "--slice", "2"]
    command += ["--jobs", "1", "--stages", "golden", "--share", "5", "--again"]
    command += ["--verdicts", str(tmp_path / "verdicts.txt")]
    command += ["--kinds", "barriers", "sums", "counters", "--kernels", *QUICK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 2 mutants survived, 0 are left" in done.stdout
