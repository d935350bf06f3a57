"""Kernels of generated C beside their mirrors, for any number of cores."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from rpukit import tiled
from tests.on_cpu import store
from tests.tiled.test_codegen import SANITIZE, build


def images():
    """Convolutions with strides, dilations, padding and groups, and pools over borders."""
    rng = np.random.default_rng(3)
    b = tiled.Builder("images")
    x, y = b.input("x", (2, 4, 11, 9)), b.input("y", (2, 3))

    def conv(h, name, shape, **how):
        w = b.parameter(name, rng.normal(size=shape) * 0.4)
        return b.apply("Conv", h, w, b.parameter(f"{name}_b", rng.normal(size=shape[0])), **how)

    h = conv(x, "strided", (8, 4, 3, 3), pads=(1, 1, 1, 1), strides=(2, 1))
    h = b.apply("HardSwish", h)
    h = conv(h, "depthwise", (8, 1, 3, 3), pads=(2, 1, 2, 1), dilations=(2, 1), group=8)
    h = conv(b.apply("Gelu", h), "grouped", (12, 4, 3, 2), pads=(0, 1, 1, 0), group=2)
    h = conv(b.apply("Clip", h, min=-1.5, max=2.0), "pointwise", (5, 12, 1, 1))
    h = conv(h, "wide", (6, 5, 2, 4), pads=(1, 2, 1, 2), strides=(1, 3), dilations=(2, 2))
    h = b.apply("MaxPool", h, kernel_shape=(2, 2), pads=(1, 0, 0, 1))
    h = b.apply("AveragePool", h, kernel_shape=(2, 3), strides=(2, 1), pads=(0, 1, 1, 1))
    h = b.apply("Flatten", h)
    h = b.apply("Gemm", h, b.parameter("v", rng.normal(size=(3, 54)) * 0.2), transB=1)
    training = b.training(b.apply("MSELoss", b.apply("Softmax", h), y), tiled.Adam(lr=0.01))
    batch = rng.normal(size=(2, 4, 11, 9)).astype("f4"), rng.normal(size=(2, 3)).astype("f4")
    return training, [batch, batch]


def run(folder, cores):
    return subprocess.run(
        ["./network", "mixed", "9"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "CORES": str(cores)},
    )


def assert_same_for(folder, *cores):
    for n in cores:
        done = run(folder, n)
        assert done.returncode == 0 and "errors=0" in done.stdout, (n, done)


def test_windows_of_all_kinds_under_sanitizers(tmp_path):
    training, batches = images()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=4_000), buffering="single")
    assert max(op.n_tiles for op in plan.ops()) > 3
    plan.generate_c(tmp_path, training, batches)
    build(tmp_path, *SANITIZE)
    assert_same_for(tmp_path, 3)


def test_windows_of_all_kinds_for_any_number_of_cores(tmp_path):
    training, batches = images()
    tiled.plan(training, tiled.siracusa_l2(l1=4_000)).generate_c(tmp_path, training, batches)
    build(tmp_path, "-O2")
    assert_same_for(tmp_path, 1, 2, 7)
    done = run(tmp_path, 65)
    assert done.returncode == 2 and "need 1 to 64" in done.stderr


FMA = """
#include "exact.h"
#include <math.h>
#include <stdio.h>
int main(void) {
    uint32_t seed = 1, n_wrong = 0, n_root = 0;
    for (int k = 0; k < 300000; k++) {
        float v[3];
        for (int i = 0; i < 3; i++) {
            seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
            uint32_t bits = seed;
            if (k % 3 == 0) bits = (bits & 0x80ffffffu) | 0x3f000000u; /* of similar size */
            if (k % 3 == 1) bits &= 0xc0fff000u | (k % 2 ? 0xfffu : 0u); /* few bits */
            v[i] = float_of(bits);
        }
        if (k % 5 == 0) v[2] = -v[0] * v[1]; /* what is left of the product */
        float want = fmaf(v[0], v[1], v[2]), have = soft_fma(v[0], v[1], v[2]);
        if (want == want || have == have) n_wrong += bits_of(want) != bits_of(have);
        float root = exact_abs(v[0]);
        n_root += root == root && bits_of(exact_sqrt(root)) != bits_of(sqrtf(root));
    }
    printf("%u %u\\n", (unsigned)n_wrong, (unsigned)n_root);
    return n_wrong != 0 || n_root != 0;
}
"""


@pytest.mark.parametrize("instruction", [True, False])
def test_fma_and_root_in_software(tmp_path, instruction):
    """Processors without instructions for them get the same bits."""
    header = tmp_path / "exact.h"
    training, batches = images()
    tiled.plan(training, tiled.siracusa_l2(l1=16_000)).generate_c(tmp_path, training, batches)
    if not instruction:
        text = header.read_text()
        header.write_text(text.replace("#if defined(__SSE__)", "#if defined(NO_SUCH_PROCESSOR)"))
        assert header.read_text() != text
    (tmp_path / "check.c").write_text(FMA)

    def make(target):
        flags = ["-std=c99", "-O2", "-ffp-contract=off"]
        command = ["gcc", *flags, "-o", str(target), "check.c", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    key = store.key_of("fma", header.read_text(), FMA)
    shutil.copy(store.kept(f"fma-{key}", make), tmp_path / "check")
    done = subprocess.run(["./check"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.stdout == "0 0\n"


def tokens():
    """An embedding of tokens, whose table is the head's weights too, and a class of each token."""
    rng = np.random.default_rng(7)
    b = tiled.Builder("tokens")
    x, t = b.input("x", (2, 6), np.int64), b.input("t", (12,), np.int64)
    table = b.parameter("table", rng.normal(size=(17, 10)))
    h = b.apply("GatherRows", table, b.apply("Reshape", x, shape=(-1,)))
    h = b.apply("Add", h, b.apply("Tanh", h))
    loss = b.apply("SoftmaxCrossEntropyLoss", b.apply("Gemm", h, table, transB=1), t)
    training = b.training(loss, tiled.SGD(lr=0.1))
    batches = [(rng.integers(0, 17, (2, 6)), rng.integers(0, 17, 12)) for _ in range(2)]
    return training, batches


def test_rows_of_tables_under_sanitizers(tmp_path):
    training, batches = tokens()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=1_000), buffering="single")
    nodes = {op.node: op.n_tiles for op in plan.ops()}
    assert min(nodes["gatherrows"], nodes["scatterrows"]) > 1
    plan.generate_c(tmp_path, training, batches)
    build(tmp_path, *SANITIZE)
    assert_same_for(tmp_path, 1, 3)
    trainer = plan.trainer(training)
    assert trainer.step(batches[0]) > trainer.step(batches[0])  # it learns
