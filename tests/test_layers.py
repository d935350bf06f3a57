"""Who may import whom: a file of rpukit imports from lower layers and from its own folder only."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rpukit"

# Bottom-up; a folder stands for all of its files. `kernels_cu` is layer 0 and holds no Python.
LAYERS = {
    1: [
        "errors",
        "typing",
        "_version",
        "_archive",
        "_device",
        "_frames",
        "_workers",
        "random",
        "_exact",
    ],
    2: ["_kernels", "elementwise", "summaries", "testing", "tuning"],
    3: ["gemm", "analog", "inference", "circuits", "tiled"],
    4: [
        "io",
        "plot",
        "studies",
        "demo",
        "torch",
        "onnx",
        "estimators",
        "_figures",
        "distributed",
    ],
    5: ["__init__", "__main__", "_cli"],
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
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


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


def imported(path: Path) -> list[tuple[str, int]]:
    """List (module, line) of all imports of a file, those by `import_module("...")` included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import, write it in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.append((whole if whole in MODULES else str(node.module), node.lineno))
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            target = node.args[0]
            if name.endswith("import_module") and isinstance(target, ast.Constant):
                found.append((str(target.value), node.lineno))
    return found


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
    later = {"cupy", "dask", "matplotlib", "onnx", "sklearn", "scipy", "torch", "tqdm", "numba"}
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


def test_no_cycles():
    graph = {module_name(path): set(loaded(path)) & MODULES for path in FILES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name not in done:
            for target in sorted(graph[name] - {name}):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
