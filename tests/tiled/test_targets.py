"""Generated C on microcontrollers that QEMU has: the bits of the CPU executor."""

import shutil
from pathlib import Path

import pytest

from rpukit import tiled
from rpukit.tiled import methods
from tests.reference.models import NAMES
from tests.tiled.c_targets import run_on
from tests.tiled.method_nets import gated
from tests.tiled.reference_plans import model

pytestmark = pytest.mark.qemu

PMSIS = Path(__file__).parent / "pmsis"
DENSE, IMAGES = (
    next(n for n in NAMES if n.endswith(end)) for end in ("mlp_accum2", "mobilenet_tiny")
)


def write(name, folder, levels=None):
    training, batches, n_accumulate = model(name)
    batches = batches[: 2 * n_accumulate]
    plan = tiled.plan(training, levels or tiled.siracusa_l2(l1=16_000))
    plan.generate_c(folder, training, batches, n_accumulate=n_accumulate)


def assert_sound(run):
    assert run.errors == 0, run.output
    assert "DIFFERS" not in run.output
    assert run.train > run.update > 0
    assert 0 < run.stack < 4096
    assert 0 < run.code < 100_000
    assert run.weights > 0 and run.arenas > 0


@pytest.mark.parametrize("name", [DENSE, IMAGES])
def test_cortex_m55(tmp_path, name):
    write(name, tmp_path)
    assert_sound(run_on(tmp_path, "mps3_an547"))


def test_cortex_m7(tmp_path):
    write(IMAGES, tmp_path)
    assert_sound(run_on(tmp_path, "mps2_an500"))


def test_cortex_m33_with_a_dma_controller(tmp_path):
    write(IMAGES, tmp_path, tiled.siracusa_l3(l1=8_000, l2=40_000))
    assert_sound(run_on(tmp_path, "mps2_an505"))


def test_cortex_m33_without_floating_point(tmp_path):
    """Sums of products are rounded once by integer arithmetic and float64 in software."""
    write(DENSE, tmp_path)
    cmake = tmp_path / "targets" / "mps2_an505" / "target.cmake"
    text = cmake.read_text()
    soft = text.replace("-mfloat-abi=hard -mfpu=fpv5-sp-d16", "-mfloat-abi=soft")
    assert soft != text
    cmake.write_text(soft)
    assert_sound(run_on(tmp_path, "mps2_an505"))


def test_fused_chains_and_small_formats(tmp_path):
    """A gated layer as one chain, factors of int8, and float16 for the backward pass."""
    b, loss, batches = gated()
    small = methods.quantise(b, batches, stored=True)
    less = methods.store_narrow(small.training(loss, tiled.SGD(lr=0.1)), others="fp16")
    training = tiled.fuse(less)
    ops = {node.op for node in training.train.nodes}
    assert ops >= {"FusedPointwise", "Quantize", "Dequantize", "QuantizeGrad"}
    assert {tensor.dtype for tensor in training.train.tensors.values()} >= {"int8", "float16"}
    tiled.plan(training, tiled.siracusa_l2(l1=8_000)).generate_c(tmp_path, training, batches[:1])
    run = run_on(tmp_path, "mps3_an547")
    assert run.errors == 0 and "DIFFERS" not in run.output


@pytest.mark.parametrize("harts", [1, 3])
def test_riscv(tmp_path, harts):
    write(DENSE, tmp_path)
    run = run_on(tmp_path, "riscv_virt", f"-DHARTS={harts}")
    assert run.errors == 0 and "DIFFERS" not in run.output
    assert 0 < run.stack < 4096


def test_siracusa_over_a_stand_in_for_its_sdk(tmp_path):
    """Commands of the cluster's DMA and of the external RAM, three levels, a team of three."""
    write(IMAGES, tmp_path, tiled.siracusa_l3(l1=8_000, l2=40_000))
    own = tmp_path / "targets" / "siracusa"
    shutil.copy(own / "sections.h", tmp_path / "targets" / "riscv_virt")
    extra = f"-DEXTRA={own / 'target_siracusa.c'};{PMSIS / 'stand_in.c'}"
    run = run_on(tmp_path, "riscv_virt", extra, f"-DCMAKE_C_FLAGS=-I{PMSIS} -I{own}")
    assert run.errors == 0 and "DIFFERS" not in run.output


def test_a_wrong_weight_is_noticed(tmp_path):
    write(DENSE, tmp_path)
    path = tmp_path / "weights.c"
    text = path.read_text()
    at = text.index("{\n    0x") + len("{\n    0x")
    path.write_text(text[:at] + "3f8" + text[at + 3 :])
    assert run_on(tmp_path, "riscv_virt").errors > 0
