"""What is shipped, what is required, and what `import rpukit` costs."""

import ast
import configparser
import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rpukit as rk

ROOT = Path(__file__).parents[1]
SOURCE = ast.parse((ROOT / "rpukit/__init__.py").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def config():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def package_of(requirement: str) -> str:
    """Reduce a requirement or constraint to the normalised name of its package."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_package_list_is_the_folders(config):
    folders = {p.parent.relative_to(ROOT) for p in ROOT.glob("rpukit/**/*.py")}
    want = {".".join(folder.parts) for folder in folders} | {"rpukit.kernels_cu"}
    assert sorted(lines(config["options"]["packages"])) == sorted(want)


def test_every_folder_is_a_package():
    for path in ROOT.glob("rpukit/**/*.py"):
        assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py"


@pytest.mark.parametrize(
    ("package", "folder"),
    [
        ("rpukit.kernels_cu", "kernels_cu"),
        ("rpukit.studies", "rpukit/studies"),
        ("rpukit.tiled", "rpukit/tiled"),
    ],
)
def test_sources_are_package_data(config, package, folder):
    patterns = [p.strip() for p in config["options.package_data"][package].split(",")]
    for path in (ROOT / folder).rglob("*"):
        name = path.relative_to(ROOT / folder).as_posix()
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert any(fnmatch.fnmatchcase(name, p) for p in patterns), f"{name} is not shipped"


def test_core_requirements_are_three(config):
    names = [package_of(line) for line in lines(config["options"]["install_requires"])]
    assert names == ["numpy", "scipy", "numba"]
    assert config["options"]["python_requires"] == ">=3.11,<3.14"


def test_extras(config):
    extras = config["options.extras_require"]
    assert set(extras) >= {"cuda12x", "cuda13x", "plot", "demo", "test", "notebooks", "docs"}
    for extra in ("plot", "demo", "notebooks", "docs"):
        assert "cu" not in {line[:2] for line in lines(extras[extra])}, f"{extra} pulls in CUDA"


def test_every_set_up_is_pinned(config):
    text = (ROOT / "constraints.txt").read_text()
    pinned = {package_of(line) for line in lines(text) if not line.startswith("#")}
    assert all("==" in line for line in lines(text) if not line.startswith("#"))
    wanted = lines(config["options"]["install_requires"])
    for extra in ("cuda12x-min", "demo", "test", "notebooks", "docs", "dev", "torch"):
        wanted += lines(config["options.extras_require"][extra])
    assert {package_of(line) for line in wanted} - pinned == {"rpukit"}


def test_settings_name_files_that_are_there(config):
    """Of ruff, mypy and coverage: a setting for a file that has moved would do nothing."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    paths = [*tools["ruff"]["lint"]["per-file-ignores"], *lines(config["coverage:report"]["omit"])]
    for section in config.sections():
        if section.startswith("mypy-rpukit"):
            names = section.removeprefix("mypy-").split(",")
            paths += [name.strip().replace(".", "/") + "*" for name in names]
    assert len(paths) > 10
    assert [path for path in paths if not any(ROOT.glob(path))] == []


def test_manifest_grafts_what_is_not_in_the_wheel():
    text = (ROOT / "MANIFEST.in").read_text()
    for folder in ("kernels_cu", "tests", "notebooks", "asv_benchmarks", "docs", "tools"):
        assert f"graft {folder}\n" in text
        assert (ROOT / folder).is_dir()


def test_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", rk.__version__)
    assert f"\nversion: {rk.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_public_names_load():
    assert rk.__all__ == sorted(rk.__all__)
    assert dir(rk) == rk.__all__
    for name in rk.__all__:
        assert getattr(rk, name) is not None
    assert set(rk._HOME) <= set(rk.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rk.no_such_name


def test_api_page_lists_the_public_names():
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w+)$", text, re.M)
    assert sorted(listed) == sorted(set(rk.__all__) - {"__version__"})


def test_type_checkers_see_the_public_names():
    """The imports under TYPE_CHECKING are the names of `__all__`, each from its home."""
    (block,) = [
        n for n in SOURCE.body if isinstance(n, ast.If) and "not" not in ast.unparse(n.test)
    ]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            seen[alias.name] = str(node.module).removeprefix("rpukit").removeprefix(".")
    assert {name: home for name, home in seen.items() if home} == rk._HOME
    assert set(seen) == set(rk.__all__) - {"__version__"}


def run_python(code: str, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True
    )


def test_import_loads_neither_numba_nor_cupy():
    code = "import sys, rpukit; print(*{'numba', 'cupy', 'scipy'} & set(sys.modules))"
    assert run_python(code).stdout.strip() == ""


def test_public_names_load_neither_numba_nor_cupy():
    code = (
        "import sys, rpukit as rk\n"
        "for name in rk.__all__: getattr(rk, name)\n"
        "print(*{'numba', 'cupy', 'matplotlib', 'sklearn'} & set(sys.modules))"
    )
    assert run_python(code).stdout.strip() == ""


def test_import_is_quick():
    """Below 0.3 s; the best of five, since the machine may be busy."""
    code = "import time; t = time.perf_counter(); import rpukit; print(time.perf_counter() - t)"
    assert min(float(run_python(code).stdout) for _ in range(5)) < 0.3


def test_command_line_starts():
    done = subprocess.run(
        [sys.executable, "-m", "rpukit", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("info", "kernels", "check", "demo"):
        assert command in done.stdout
