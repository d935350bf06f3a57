"""Plans as C99: the bits of the CPU executor, in every order of transfers; faults have names."""

import re
import shutil
import subprocess

import pytest

from rpukit import tiled
from rpukit.errors import PlanError
from tests.on_cpu import store
from tests.reference.models import NAMES
from tests.tiled.reference_plans import model, plan_of

WARN = [
    *("-std=c99", "-Wall", "-Wextra", "-Werror"),
    *("-ffp-contract=off", "-fno-strict-aliasing"),
]
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SMALL = [n for n in NAMES if n.split("/")[-1] in ("ae_mse_b16", "lenet_max")]
FIXTURES = [n for n in NAMES if n.split("/")[-1] in ("SimpleMLP", "Autoencoder", "DSCNN")]
LARGE = [n for n in NAMES if n.split("/")[-1] in ("ResNet8", "MobileNetV1", "CCT")]
MODES = (["at_issue"], ["at_wait"], ["mixed", "1"], ["mixed", "77"])


def generate(name, folder, l1=16_000, buffering="auto"):
    training, batches, n_accumulate = model(name)
    plan = plan_of(name, l1, buffering)
    plan.generate_c(folder, training, batches, n_accumulate=n_accumulate)
    return plan


def build(folder, *flags, compiler="gcc"):
    """Compile a folder to its program ``network``; the same contents are compiled once."""
    found = sorted(
        path for part in (".", "targets/host") for path in (folder / part).glob("*.[ch]")
    )
    texts = [f"{path.name}\n{path.read_text()}" for path in found]
    sources = [str(path.relative_to(folder)) for path in found if path.suffix == ".c"]

    def make(target):
        include = ["-I.", "-Itargets/host"]
        command = [
            compiler,
            *WARN,
            *flags,
            *include,
            "-o",
            str(target),
            *sources,
            "-lm",
            "-pthread",
        ]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)

    name = f"network-{store.key_of(compiler, *WARN, *flags, *texts)}"
    shutil.copy(store.kept(name, make), folder / "network")


def run(folder, *mode):
    return subprocess.run(
        ["./network", *mode], cwd=folder, check=False, capture_output=True, text=True
    )


def assert_bits_and_cycles(folder, plan, n_batch, n_update):
    for mode in MODES:
        done = run(folder, *mode)
        assert done.returncode == 0, (mode, done.stdout, done.stderr)
        found = re.search(r"train_cycles=(\d+) opt_cycles=(\d+) errors=0", done.stdout)
        assert found, done.stdout
        train, update = (program.cycles for program in plan.programs)
        assert [int(v) for v in found.groups()] == [train * n_batch, update * n_update]


@pytest.mark.sweep
@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", [*SMALL, *FIXTURES])
def test_bits_and_cycles_of_the_plan(tmp_path, name, buffering):
    plan = generate(name, tmp_path, buffering=buffering)
    build(tmp_path, "-O2")
    _, batches, n_accumulate = model(name)
    assert_bits_and_cycles(tmp_path, plan, len(batches), len(batches) // n_accumulate)


@pytest.mark.slow
@pytest.mark.parametrize("buffering", ["single", "double", "auto"])
@pytest.mark.parametrize("name", LARGE)
def test_large_models(tmp_path, name, buffering):
    plan = generate(name, tmp_path, 128_000, buffering)
    build(tmp_path, "-O2")
    _, batches, n_accumulate = model(name)
    assert_bits_and_cycles(tmp_path, plan, len(batches), len(batches) // n_accumulate)


def test_clean_under_sanitizers_and_clang(tmp_path):
    generate(SMALL[0], tmp_path)
    build(tmp_path, *SANITIZE)
    assert run(tmp_path, "mixed", "5").returncode == 0
    if shutil.which("clang"):
        build(tmp_path, "-O2", compiler="clang")
        assert run(tmp_path, "at_wait").returncode == 0


def test_products_that_end_with_relu(tmp_path):
    training, batches, n_accumulate = model(SMALL[0])
    fused = tiled.fuse_activations(training)
    assert len(fused.train.nodes) < len(training.train.nodes)
    plan = tiled.plan(fused, tiled.siracusa_l2(l1=16_000))
    plan.generate_c(tmp_path, fused, batches, n_accumulate=n_accumulate)
    build(tmp_path, "-O1")
    assert_bits_and_cycles(tmp_path, plan, len(batches), len(batches) // n_accumulate)


def spoil(folder, change):
    """Change the training program's text, build and run it."""
    path = folder / "training_network.c"
    text = path.read_text()
    changed = change(text)
    assert changed != text
    path.write_text(changed)
    build(folder, "-O1")
    return run(folder)


def test_planted_defects_have_names(tmp_path):
    generate(SMALL[0], tmp_path, buffering="double")
    text = (tmp_path / "training_network.c").read_text()
    wait = re.findall(r"    WAIT\(\d+\),\n", text)[-1]

    def last_wait_gone(text):
        at = text.rindex(wait)
        return text[:at] + text[at + len(wait) :]

    done = spoil(tmp_path, last_wait_gone)
    assert done.returncode == 3 and "missing wait" in done.stderr
    (tmp_path / "training_network.c").write_text(text)
    pair = (
        r"(    COPY\()(\d+)(,[^\n]*\n    COPY\()(\d+)"  # the second of two gets the first's token
    )
    done = spoil(tmp_path, lambda text: re.sub(pair, r"\1\2\3\2", text, count=1))
    assert done.returncode == 3 and "token reused" in done.stderr
    (tmp_path / "training_network.c").write_text(text)
    memory = (tmp_path / "memory.c").read_text()
    short = re.sub(r"(    \{1, \d+, )(\d+)\}", lambda m: f"{m[1]}{int(m[2]) // 2}}}", memory)
    (tmp_path / "memory.c").write_text(short)
    build(tmp_path, "-O1")
    done = run(tmp_path)
    assert done.returncode == 3 and "slot too short" in done.stderr


def test_float64_is_refused(tmp_path):
    b = tiled.Builder("wide", dtype="float64")
    x, y = b.input("x", (2, 3)), b.input("y", (2, 2))
    loss = b.apply("MSELoss", b.apply("Gemm", x, b.parameter("w", [[1.0, 2], [3, 4], [5, 6]])), y)
    training = b.training(loss, tiled.SGD(lr=0.1))
    plan = tiled.plan(training, tiled.siracusa_l2(l1=16_000))
    with pytest.raises(PlanError, match="float32"):
        tiled.generate_c(plan, training, tmp_path, [])
