"""Files of every kind and every version of their formats load, and continue, with recorded bits.

``tests/data/files`` has a small file of each, written by the rpukit of its time. Those called
``checksum`` are of today. ``python -m tests.test_old_files`` records the bits of new files.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from tools.fuzz_files import data, plain

FOLDER = Path(__file__).parent / "data" / "files"
KNOWN = FOLDER / "known.json"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.name != KNOWN.name)


def training():
    b = rk.tiled.Builder("line")
    x, y = b.input("x", (4, 3)), b.input("y", (4, 1))
    out = b.apply("Gemm", x, b.parameter("w", data(1, 3)), transB=1)
    return b.training(b.apply("MSELoss", out, y), rk.tiled.SGD(lr=0.1))


def digest(*values):
    return hashlib.sha256(repr(plain(values)).encode()).hexdigest()[:16]


def of_trainer(trainer, path=None):
    if path is not None:
        trainer.load(path)
    state = trainer.n_step, trainer.parameters(everything=True)
    return digest(state), digest(trainer.fit([(data(4, 3), data(4, 1))] * 2))


def bits(name):
    """Digests of the loaded state, and of the results of the next calls."""
    path = FOLDER / name
    if name.startswith("trainer"):
        made = training()
        return of_trainer(rk.tiled.plan(made, rk.tiled.siracusa_l2()).trainer(made), path)
    if name.startswith("plan"):
        return of_trainer(rk.tiled.Plan.from_json(path.read_text()).trainer(training()))
    one = rk.load(path)
    state = digest(one.state()["arrays"])
    if isinstance(one, rk.Circuit):
        x = np.arange(24).reshape(6, 4) % 5 if one.n_variables == 4 else data(6, 2)
        return state, digest(one.log_likelihood(x), one.em_step(x), one.sample(3))
    real = getattr(one, "dtype", np.float32)
    x, d = data(2, 4).astype(real), data(2, 3).astype(real)
    return state, digest(one.forward(x), one.backward(d), one.update(x, d, 0.1).get_weights())


def test_files_of_all_kinds_and_versions_are_there():
    kinds = {name.split("_")[0] for name in FILES}
    assert kinds == {"tile", "inference", "mapped", "circuit", "trainer", "plan"}
    for version in ("v1", "v2", "v3", "checksum"):
        assert any(name.startswith("tile") and f"_{version}" in name for name in FILES)
    assert sum((FOLDER / name).stat().st_size for name in FILES) < 1 << 20


@pytest.mark.parametrize("name", FILES)
def test_an_old_file_continues_with_the_same_bits(name):
    assert list(bits(name)) == json.loads(KNOWN.read_text())[name]


if __name__ == "__main__":
    KNOWN.write_text(json.dumps({name: bits(name) for name in FILES}, indent=1) + "\n")
