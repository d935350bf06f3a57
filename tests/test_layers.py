"""Who may import whom: a file of rpukit imports from lower layers and from its own folder only.

An import counts wherever it stands: at the top of a file, inside a function, for type checkers
only, or as a module's name in a string, as ``import_module("rpukit.analog.presets")`` takes it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rpukit"

# Bottom-up; a folder stands for all of its files. `kernels_cu` is layer 0 and holds no Python.
LAYERS = {
    1: [
        *("errors", "_version", "_cache", "_device", "_workers", "random"),
        *("_checks", "_exact", "_files"),
    ],
    2: ["_kernels", "elementwise", "summaries", "testing", "tuning"],
    3: ["gemm", "analog", "inference", "circuits", "tiled"],
    4: [
        *("io", "plot", "studies", "demo", "distributed", "torch", "estimators", "presets"),
        *("costs", "crossbar", "layers"),
        "_warm_up",
    ],
    5: ["__init__", "__main__", "cli"],
}
# The only imports between different folders of one layer.
SIDEWAYS = {
    ("elementwise", "_kernels"),
    ("testing", "_kernels"),
    ("tuning", "_kernels"),
    ("analog", "gemm"),
    ("inference", "gemm"),
    ("inference", "analog"),
    ("tiled", "gemm"),
    ("tiled", "analog"),
}
# The parts of a package, bottom-up: each imports only from those before it.
PARTS: dict[str, list[str]] = {
    "analog": [
        *("_steps", "parameters", "_mirror", "cells", "deferred_errors", "processes", "describe"),
        *("product", "update", "arrays", "transfer", "tile", "sharded", "presets"),
    ],
    "circuits": [
        *("_mirror", "graph", "compiled", "describe", "structures", "ops", "parameters"),
        *(
            "partials",
            "memory",
            "momenta",
            "core",
            "peers",
            "queries",
            "state",
            "learning",
            "circuit",
        ),
    ],
    "inference": [
        "_mirror",
        "describe",
        "conductance",
        "noise",
        "training",
        "tile",
        "sharded",
        "grid",
    ],
    "tiled": [
        *("_mirror", "ir", "rates", "machine", "tile_space", "ops", "program", "verify"),
        *("runtime", "graph", "plan", "planner", "methods", "calibration", "reports"),
    ],
}
MOST_FILES = 15
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES})


def unit(module: str) -> str:
    """Name the part of rpukit that a module belongs to: "rpukit.analog.tile.tile" -> "analog"."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def layer(name: str) -> int:
    """Find the layer of a part; a part without one is a failure."""
    assert name in LAYER_OF, f"rpukit/{name} has no layer: add it to LAYERS of {__file__}"
    return LAYER_OF[name]


def module_name(path: Path) -> str:
    """Turn a path into the module's dotted name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


def imports_of(tree: ast.AST, where: str) -> list[tuple[str, int]]:
    """List (module, line) of all imports of a file, wherever they stand.

    A module's name in a string counts, but for that of a package whose data files are read.
    """
    found = []
    data = {id(n.args[0]) for n in ast.walk(tree) if isinstance(n, ast.Call) and is_files(n)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}:{node.lineno}: relative import, write it in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append((whole if whole in MODULES else str(node.module), node.lineno))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "." in node.value and node.value in MODULES and id(node) not in data:
                found.append((node.value, node.lineno))
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            target = node.args[0]
            if name.endswith("import_module") and isinstance(target, ast.Constant):
                found.append((str(target.value), node.lineno))
    return found


def is_files(call: ast.Call) -> bool:
    """Tell whether a call is ``resources.files(package)``."""
    return bool(call.args) and ast.unparse(call.func) == "resources.files"


@cache
def imported(path: Path) -> list[tuple[str, int]]:
    """List (module, line) of all imports of a file of the package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return imports_of(tree, str(path.relative_to(ROOT)))


def fail_on(problems: list[str]) -> None:
    """Fail with all problems at once, one a line."""
    assert not problems, "\n" + "\n".join(problems)


def imports() -> list[tuple[Path, str, str]]:
    """List (file, imported module, "file:line: imports module") over the whole package."""
    return [
        (path, module, f"{path.relative_to(ROOT)}:{line}: imports {module}")
        for path in FILES
        for module, line in imported(path)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import rpukit.errors",
        "from rpukit import errors",
        "from rpukit.errors import RpukitError",
        "def f():\n    from rpukit import errors",
        "if TYPE_CHECKING:\n    from rpukit.errors import RpukitError",
        'module = import_module("rpukit.errors")',
        'mirror = twins.mirror("rpukit.errors", dtype)',
        'HOME = {"RpukitError": "rpukit.errors"}',
    ],
)
def test_imports_are_seen_wherever_they_stand(text):
    assert {name for name, _ in imports_of(ast.parse(text), "text")} == {"rpukit.errors"}


def test_reading_data_files_is_no_import():
    text = 'text = resources.files("rpukit.tiled").joinpath("c/exact.h").read_text()'
    assert imports_of(ast.parse(text), "text") == []


def test_every_name_of_the_lists_is_there():
    missing = [name for name in LAYER_OF if not exists(PACKAGE, name)]
    missing += [f"{p}/{name}" for p in PARTS for name in PARTS[p] if not exists(PACKAGE / p, name)]
    assert missing == []
    used = {(unit(module_name(path)), unit(module)) for path, module, _ in imports()}
    assert used >= SIDEWAYS


def test_contributing_names_every_part():
    """And in its table nothing that is not there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| `rpukit/")]
    named = {
        name.removeprefix("rpukit/").removesuffix("/").removesuffix(".py")
        for row in rows
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert named == set(LAYER_OF)


def exists(folder: Path, name: str) -> bool:
    return (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()


def test_imports_only_from_below():
    problems = []
    for path, module, where in imports():
        if module.split(".")[0] != "rpukit":
            continue
        mine, theirs = unit(module_name(path)), unit(module)
        if layer(theirs) > layer(mine):
            problems.append(f"{where}, which is in a higher layer")
        folders = layer(theirs) == layer(mine) in (2, 3)  # the others are files of rpukit/ itself
        if folders and theirs != mine and (mine, theirs) not in SIDEWAYS:
            problems.append(f"{where}, a neighbour that it must not know")
    fail_on(problems)


def part_of(module: str, folder: str) -> str | None:
    """Name the file or folder directly in a folder that a module belongs to, if to any."""
    if module == folder:
        return "__init__"
    return module[len(folder) + 1 :].split(".")[0] if module.startswith(f"{folder}.") else None


def graph_of(folder: Path) -> dict[str, dict[str, str]]:
    """Map each part of a folder to the parts that it imports, with one place where it does."""
    name, graph = module_name(folder / "__init__.py"), {}
    for path in sorted(folder.rglob("*.py")):
        mine = part_of(module_name(path), name)
        targets = graph.setdefault(mine, {})
        for module, line in imported(path):
            theirs = part_of(module, name)
            if theirs not in (None, mine):
                targets.setdefault(theirs, f"{path.relative_to(ROOT)}:{line}: imports {module}")
    return graph


def circles(graph: dict[str, dict[str, str]]) -> list[str]:
    """Describe one way round for every part that can be reached from itself."""
    found, told = [], set()
    for start in sorted(graph):
        trails = [[start]]
        seen = set()
        while trails and start not in told:
            trail = trails.pop(0)
            for target in sorted(graph.get(trail[-1], {})):
                if target == start:
                    places = [graph[a][b] for a, b in zip(trail, [*trail[1:], start], strict=True)]
                    found.append(f"{' -> '.join([*trail, start])}\n    " + "\n    ".join(places))
                    told.update(trail)
                elif target not in seen:
                    seen.add(target)
                    trails.append([*trail, target])
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_circles(folder):
    """Neither between the files of a folder, nor between the folders in it."""
    fail_on(circles(graph_of(folder)))


def test_circles_are_found():
    graph = {"a": {"b": "a:1"}, "b": {"c": "b:2"}, "c": {"b": "c:3", "d": "c:4"}, "d": {}}
    assert circles(graph) == ["b -> c -> b\n    b:2\n    c:3"]
    del graph["c"]["b"]
    assert circles(graph) == []


def test_no_circles_between_files():
    """Over the whole package: a way round through several folders is one, too."""
    graph = {
        module_name(path): {m: f"line {n}" for m, n in imported(path) if m in MODULES}
        for path in FILES
    }
    for module, targets in graph.items():
        targets.pop(module, None)
    fail_on(circles(graph))


@pytest.mark.parametrize("package", PARTS)
def test_parts_import_from_those_before_them(package):
    order, graph = PARTS[package], graph_of(PACKAGE / package)
    graph.pop("__init__")  # the face of the package, which nothing in it imports
    assert sorted(graph) == sorted(order), f"PARTS of {__file__} lists others"
    fail_on(
        [
            f"{place}, which comes after {mine}"
            for mine, targets in graph.items()
            for theirs, place in targets.items()
            if theirs == "__init__" or order.index(theirs) > order.index(mine)
        ]
    )


def test_folders_are_small():
    """Mirrors excepted, which are as many as the kernels."""
    for folder in FOLDERS:
        n = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        if folder.name != "_mirror":
            assert n <= MOST_FILES, f"{folder.relative_to(ROOT)}: {n} files, at most {MOST_FILES}"


def is_numba_file(path: Path) -> bool:
    """Tell whether a file may import Numba: mirrors, mathematics, random twins, device steps."""
    name = path.relative_to(PACKAGE).as_posix()
    return name.startswith("_exact/") or "/_mirror" in f"/{name}" or name == "analog/_steps.py"


def test_cupy_and_numba_stay_where_they_belong():
    problems = []
    for path, module, where in imports():
        top = module.split(".")[0]
        if top in ("cupy", "cupyx") and path != PACKAGE / "_device.py":
            problems.append(f"{where}: only rpukit/_device.py may")
        if top in ("numba", "llvmlite") and not is_numba_file(path):
            problems.append(f"{where}: only mirrors and their mathematics may")
    fail_on(problems)


def loaded(path: Path) -> list[str]:
    """List what is imported when the file itself is: not later, and not only for types."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found += whole & MODULES or {str(node.module)}
    return found


def test_other_libraries_are_imported_when_used():
    """At the top of a file: the standard library and NumPy; Numba where it belongs."""
    later = {
        "cupy",
        "dask",
        "distributed",
        "zarr",
        "matplotlib",
        "onnx",
        "sklearn",
        "scipy",
        "torch",
        "tqdm",
        "numba",
    }
    problems = []
    for path in FILES:
        hit = {module.split(".")[0] for module in loaded(path)} & later
        hit -= {"numba"} if is_numba_file(path) else set()
        problems += [
            f"{path.relative_to(ROOT)}: {name}, import it where it is used" for name in hit
        ]
    fail_on(problems)


def test_mirrors_are_loaded_when_used():
    slow = {module_name(path) for path in FILES if "numba" in loaded(path)}
    assert slow, "no file imports Numba: this test looks in the wrong place"
    problems = []
    for path in FILES:
        if not is_numba_file(path):
            hit = slow & set(loaded(path))
            problems += [
                f"{path.relative_to(ROOT)}: {name} imports Numba, load it later" for name in hit
            ]
    fail_on(problems)
