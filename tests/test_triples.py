"""A kernel is a triple with one name: `kernels_cu/<name>.cu`, a mirror and an op; it has a test.

The head of each `.cu` says where its mirror and op are; these tests hold it to that. What the
contract on bits asks of the text of mirrors and kernels is checked here too.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = sorted((ROOT / "kernels_cu").glob("*.cu"))
SOURCES = KERNELS + sorted((ROOT / "kernels_cu").glob("include/*.cuh"))
PACKAGE = ROOT / "rpukit"
MIRRORS = sorted(
    {
        *PACKAGE.glob("_exact/*.py"),
        *PACKAGE.glob("*/_mirror*.py"),
        *PACKAGE.glob("*/_mirror/*.py"),
        PACKAGE / "analog/_steps.py",
    }
)
ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a", "sm_120"]
each_kernel = pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
each_mirror = pytest.mark.parametrize("path", MIRRORS, ids=lambda p: str(p.relative_to(PACKAGE)))


def head(path: Path) -> dict[str, list[str]]:
    """Read the `// key: value` lines of the comment that opens a `.cu`."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        match = re.match(r"// (mirror|op|bits|arch|check|source): (.*)$", line)
        if match:
            found.setdefault(match[1], []).append(match[2].strip())
    return found


def code(path: Path) -> str:
    """Return a CUDA source without comments, with the line numbers kept."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def place(path: Path, text: str, start: int) -> str:
    """Name file and line of a hit."""
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, start) + 1}"


def test_there_are_kernels_and_mirrors():
    assert len(KERNELS) >= 10
    assert len(MIRRORS) >= 5


@each_kernel
def test_head_is_complete(path):
    found = head(path)
    for key in ("mirror", "op", "bits", "arch", "source"):
        assert len(found.get(key, [])) == 1, f"{path.name}: need one line `// {key}: ...` on top"
    assert found["bits"][0] in ("exact", "arch-exact")
    if found["bits"] == ["exact"]:
        assert found["arch"][0].split() == ARCHITECTURES
    else:
        assert set(found["arch"][0].split()) <= set(ARCHITECTURES)


@each_kernel
def test_entry_point_has_the_name_of_the_file(path):
    attributes = r"(?:RK_CLUSTER\(\w+\)\s*)?(?:__launch_bounds__\([^)]*\)\s*)?"
    pattern = rf'extern\s+"C"\s+__global__\s+void\s+{attributes}(\w+)\s*\('
    assert re.findall(pattern, code(path)) == [path.stem]


@each_kernel
def test_mirror_exists(path):
    file, _, name = head(path)["mirror"][0].partition("::")
    assert name == path.stem
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    assert any(n in tree.body for n in found), f"{file} has no {name}"
    assert any("jit" in ast.unparse(d) for n in found for d in n.decorator_list)
    for function in found:  # one for each type, where the mirror picks by type
        assert [a.arg for a in function.args.args[:2]] == ["start", "stop"]


@each_kernel
def test_op_exists(path):
    module, _, name = head(path)["op"][0].rpartition(".")
    tiles = path.stem.startswith("tiled_")  # one op runs whatever kernel a tile needs
    assert name == ("run_tile" if tiles else path.stem)
    op = getattr(importlib.import_module(module), name)
    assert callable(op)
    assert op.__doc__


@each_kernel
def test_a_test_runs_it(path):
    tests = [p for p in ROOT.glob("tests/**/test_*.py") if p != Path(__file__)]
    name = re.compile(rf"\b{path.stem}\b")
    found = any(name.search(p.read_text(encoding="utf-8")) for p in tests)
    assert found, f"no tests/**/test_*.py names {path.stem}"


def test_index_lists_every_kernel_once():
    rows = re.findall(
        r"^\|\s*\[?`?(\w+)(?:\.cu)?`?", (ROOT / "kernels_cu/README.md").read_text(), re.M
    )
    known = {path.stem for path in KERNELS}
    assert sorted(row for row in rows if row in known) == sorted(known)


@each_kernel
def test_index_says_what_the_head_says(path):
    """The index has the first words of a kernel's head, without the capital."""
    (row,) = re.findall(
        rf"^\| \[{path.stem}\]\({path.name}\) \| (.*?) \| `",
        (ROOT / "kernels_cu/README.md").read_text(encoding="utf-8"),
        re.M,
    )
    what = row.replace("\\|", "|")
    lines = path.read_text(encoding="utf-8").split("\n//\n")[0].splitlines()
    opening = " ".join(line.removeprefix("// ") for line in lines)
    assert opening.startswith(what[0].upper() + what[1:])


@each_source
def test_includes_are_ours(path):
    for match in re.finditer(r"#include\s+(\S+)", code(path)):
        name = match[1].strip('"')
        assert (ROOT / "kernels_cu/include" / name).exists(), f"{path.name}: #include {match[1]}"


@each_source
def test_no_library_mathematics(path):
    """`exp` and friends of CUDA and of libm have other bits: ours begin with `rk_`."""
    text = code(path)
    names = "exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|tanh|erf|erfc|lgamma"
    names += "|tgamma|normcdfinv|rsqrt|fdividef|fma|fmaf_r[dzu]|fma_r[dzu]"
    pattern = rf"(?<![\w.])(?:__)?(?:{names})f?\s*\("
    for match in re.finditer(pattern, text):
        pytest.fail(f"{place(path, text, match.start())}: {match[0]}...) of a library")


@each_mirror
def test_mirrors_are_compiled_plainly(path):
    """No fastmath (other bits), no parallel (slower), no cache (stale), no reductions of NumPy."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                assert keyword.arg not in ("fastmath", "parallel", "cache"), (
                    f"{where}: no {ast.unparse(keyword)}"
                )
        if isinstance(node, ast.Attribute):
            banned = {"dot", "einsum", "inner", "matmul", "mean", "prange", "sum", "tensordot"}
            assert node.attr not in banned, f"{where}: .{node.attr} has no written order"
        if isinstance(node, ast.BinOp):
            assert not isinstance(node.op, ast.MatMult), f"{where}: @ has no written order"


CASTS = {"f4", "f8", "float32", "float64"}


def bare_floats(tree: ast.AST) -> list[ast.Constant]:
    """List float literals that are not inside a call such as `f4(0.5)`."""
    found = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            found.append(node)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in CASTS:
                return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


@each_mirror
def test_mirrors_wrap_their_constants(path):
    """A bare literal is float64 to Numba, and turns a float32 expression into float64."""
    for node in bare_floats(ast.parse(path.read_text(encoding="utf-8"))):
        pytest.fail(f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}, need f4() or f8()")


def test_bare_floats_finds_them():
    tree = ast.parse("def f(x):\n    return f4(0.5) * x + nb.float32(-1.5) + g(2.5) - 3.5")
    assert [node.value for node in bare_floats(tree)] == [2.5, 3.5]
