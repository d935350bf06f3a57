"""Names of users in generated C: whatever they hold, the code is the same."""

import json
import re
from itertools import product

import numpy as np
import pytest

from rpukit import tiled
from tests.tiled.test_codegen import build, run

CODE = 'system("touch pwned")'
OPENERS = [
    "%s%n",
    '"',
    "\\",
    '\\"',
    '\\\\"',
    "*/",
    "??/",
    '??/"',
    "??'",
    "\n",
    "\r\n",
    "//",
    "/*",
    "'",
]
CLOSERS = ['"', "/*", "//", "\n"]
HOSTILE = [
    *(f"{opener}; {CODE}; {closer}" for opener, closer in product(OPENERS, CLOSERS)),
    *(f"a{opener}" for opener in OPENERS),
    f'", 0, 0, 0}}}}; int x = {CODE}; //', f"*/ int main(void) {{ return {CODE}; }} /*",
    f"*??/\n/ {CODE}; /*", f"*\\\n/ {CODE}; /*", "\n#include </etc/passwd>\n",
    "\n#error x\n", "%:error", '_Pragma("once")', "\x00", "\x1a", "\u2028", "\u202e", "é" * 40,
    "\ud800", "x" * 5000, "names.json", "../../x", "tensor_0", "int", "main",
]  # fmt: skip


def sums(names):
    """A training of which every parameter and every node has a name of the list."""
    b = tiled.Builder(names[0])
    x, y = b.input(f"{names[1]} x", (2, 2)), b.input(f"{names[2]} y", (2, 2))
    rng = np.random.default_rng(5)
    h = x
    for name in names:
        w = b.parameter(name, rng.normal(size=(1, 2)))
        h = b.apply("Add", h, w, name=f"{name} sum")
    training = b.training(b.apply("MSELoss", h, y, name=f"{names[3]} loss"))
    data = rng.normal(size=(2, 2, 2)).astype("f4")
    return training, [(data[0], data[1])]


def code(folder, training, batches):
    """Write the C of a training, and give all of it but comments."""
    plan = tiled.plan(training, tiled.siracusa_l2(l1=2_000), buffering="single")
    files = plan.generate_c(folder, training, batches)
    texts = [path.read_text("ascii") for path in files if path.suffix in (".c", ".h")]
    assert "??" not in "".join(texts)
    return [re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for text in texts]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    names = [f"p{k:03}{text}" for k, text in enumerate(HOSTILE)]
    return folder, names, code(folder, *sums(names))


def test_the_code_does_not_depend_on_names(written, tmp_path):
    assert len(HOSTILE) >= 85
    plain = code(tmp_path, *sums([f"p{k:03}" for k in range(len(HOSTILE))]))
    assert written[2] == plain


def test_it_builds_and_runs_and_nothing_of_a_name_does(written):
    folder, _, _ = written
    build(folder, "-O0")
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "errors=0" in done.stdout
    assert not list(folder.glob("pwned*"))


def test_names_are_beside_the_code(written):
    folder, names, _ = written
    table = json.loads((folder / "names.json").read_text("ascii"))
    found = {entry["name"] for entry in table["tensors"].values()}
    assert set(names) <= found
    assert table["programs"][0] == names[0]
    assert all(re.fullmatch(r"tensor_\d+", key) for key in table["tensors"])
