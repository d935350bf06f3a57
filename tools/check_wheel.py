"""Check the wheel and the sdist of a folder: contents, then a clean install, run from elsewhere.

    python tools/check_wheel.py dist

Git's list of tracked files is what both are compared with. The install is into a new virtual
environment under a temporary folder, with only the core dependencies, as on a user's laptop.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_IN_SDIST = {".gitignore", ".gitattributes", ".pre-commit-config.yaml", ".ci/run"}
NOT_IN_SDIST |= {".readthedocs.yaml"}
PROGRAM = """
import sys
from pathlib import Path
import rpukit as rk
assert not {"numba", "cupy"} & set(sys.modules), "import rpukit must import neither Numba nor CuPy"
assert "site-packages" in rk.__file__, rk.__file__
import numpy as np
tile = rk.AnalogTile((3, 4), rk.ConstantStep(), seed=1)
x, d = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)
assert tile.forward(x).shape == (2, 3) and tile.backward(d).shape == (2, 4)
tile.update(x, d, lr=0.1)
assert "cupy" not in sys.modules
"""


def tracked() -> set[str]:
    """Ask git which files belong to the project."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name for name in done.stdout.split("\0") if name}


def one(folder: Path, pattern: str) -> Path:
    """Find the one file of a pattern."""
    (path,) = folder.glob(pattern)
    return path


def check_contents(wheel: Path, sdist: Path, files: set[str]) -> None:
    """Compare both archives with the tracked files."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        extra = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    package = {f for f in files if f.startswith("rpukit/")}
    kernels = {f for f in files if f.startswith("kernels_cu/")}
    wanted = package | {f"rpukit/{f}" for f in kernels}
    assert shipped == wanted, f"wheel: missing {wanted - shipped}, too many {shipped - wanted}"
    assert extra, "wheel: no LICENSE"
    with tarfile.open(sdist) as archive:
        packed = {n.split("/", 1)[1] for n in archive.getnames() if "/" in n}
    missing = files - packed - NOT_IN_SDIST
    assert not missing, f"sdist: missing {sorted(missing)}"
    print(f"wheel: {len(shipped)} files, {wheel.stat().st_size / 1024:.0f} KiB", end="; ")
    print(f"sdist: {len(packed)} names, {sdist.stat().st_size / 1024:.0f} KiB")


def check_install(wheel: Path) -> None:
    """Install the wheel as a user would, and use it from another folder."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", f"{folder}/venv"], check=True
        )
        python = f"{folder}/venv/bin/python"
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
        pip += ["--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environ["RPUKIT_CACHE_DIR"] = f"{folder}/cache"
        for command in (["-c", PROGRAM], ["-m", "rpukit", "info"], ["-m", "rpukit", "kernels"]):
            done = subprocess.run(
                [python, *command], cwd=folder, env=environ, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        for path in ROOT.glob("kernels_cu/*.cu"):
            assert path.stem in done.stdout, f"python -m rpukit kernels does not list {path.stem}"
    print("clean install: import, a tile, `info` and `kernels` work from another folder")


def main(folder: Path) -> None:
    """Check both archives in `folder`."""
    wheel, sdist = one(folder, "rpukit-*.whl"), one(folder, "rpukit-*.tar.gz")
    check_contents(wheel, sdist, tracked())
    check_install(wheel)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
