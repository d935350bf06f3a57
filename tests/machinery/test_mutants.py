"""The mutants of kernels and mirrors: what is edited, what is left out, what is equivalent."""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402
import mutate  # noqa: E402

QUICK = (
    "pulse_trains", "random_fill", "tiled_conv", "tiled_layer_norm", "tiled_softmax",
    "tiled_softmax_grad",
)  # fmt: skip
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


def test_an_entry_that_fits_nothing_is_found(tmp_path):
    (tmp_path / "some.cu").write_text(KERNEL)
    made = mutants.of_source(tmp_path, "some.cu")
    entry = '[[mutant]]\nfile = "some.cu"\nline = "{}"\nabove = "{}"\nreason = "none"\n'
    above = "if (*status || threadIdx.x >= n) return;"
    for line, before, stale in (
        ("__syncthreads();", above, 0),
        ("__syncwarp();", above, 1),
        ("__syncthreads();", "other();", 1),
    ):
        (tmp_path / "list.toml").write_text(entry.format(line, before))
        known = mutants.Equivalents(tmp_path / "list.toml")
        assert len(known.stale(made)) == stale
        assert [m.line for m in made if known.reason(m)] == [5] * (1 - stale)


def test_a_random_slice_is_killed():
    """Other mutants whenever a source changes; run by hand, `tools/mutate.py` has them all.

    Of kernels that compile quickly, and of kinds that their golden cases show.
    """
    sources = sorted((ROOT / "kernels_cu").glob("*.cu"))
    seed = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:8]
    command = [sys.executable, "tools/mutate.py", "--seed", str(int(seed, 16)), "--slice", "2"]
    command += ["--jobs", "1", "--stages", "1", "--share", "5"]
    command += ["--kinds", "barriers", "sums", "counters", "--kernels", *QUICK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 2 mutants survived, 0 are left" in done.stdout
