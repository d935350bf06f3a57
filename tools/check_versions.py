"""Run tests with the oldest and the newest versions that setup.cfg takes.

    python tools/check_versions.py          what CI runs: some mirrors, NumPy's side
    python tools/check_versions.py --all    all tests that need neither g++ nor other packages

The oldest NumPy, SciPy and Numba go with the oldest Python that is found, the newest with the
newest one; each pair gets a virtual environment in a folder that is deleted at the end. The
kernels whose mirrors are run change from day to day: ``--day`` takes those of another one.
"""

import argparse
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
TOOLS = ["hypothesis", "ml_dtypes", "mpmath", "pandas", "pytest", "pytest-xdist"]
SIDE = ["analog/test_inputs", "test_protocols", "test_io", "test_math"]  # each pair takes every
SIDE += ["test_random", "analog/test_numpy"]  # second one, the others on the next day
PLAIN = ["test_float32_walk", "test_coefficients_are_those_of_the_fit"]  # of no version's doing
EVERY = 40  # one kernel of so many, by each pair of versions
MOST = 8  # cases of a kernel, of up to two hundred


def find_python(version: str) -> str | None:
    """Find an interpreter of a version, on the path or where pyenv keeps it."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *kept.glob(f"{version}.*/bin/python")]
    for one in found:
        if one and subprocess.run([one, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return str(one)
    return None


def newest() -> list[str]:
    """The requirements of setup.cfg, of which pip takes the newest."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["options"]["install_requires"].split()


def oldest() -> list[str]:
    """The least versions that they name."""
    return [re.sub(r">=([\d.]+).*", r"==\1", line) for line in newest()]


def chosen(number: int, day: int) -> list[str]:
    """Arguments of pytest: mirrors of every fortieth kernel, half of what NumPy's versions touch.

    Of a kernel with many cases, cases spread over all of them.
    """
    first = (2 * day + number) % EVERY
    kernels = sorted(path.stem for path in (ROOT / "kernels_cu").glob("*.cu"))[first::EVERY]
    print(f"mirrors of {', '.join(kernels)}", flush=True)
    tests = [f"tests/{name}.py" for name in SIDE[(day + number) % 2 :: 2]]
    for kernel in kernels:
        record = ROOT / "tests" / "golden" / "hashes" / f"{kernel}.json"
        cases = sorted(json.loads(record.read_text())["cases"])
        some = cases[day % -(-len(cases) // MOST) :: -(-len(cases) // MOST)]
        tests += [f"tests/golden/test_golden.py::test_mirror[{kernel}-{case}]" for case in some]
    return [*tests, *(f"--deselect=tests/test_math.py::{name}" for name in PLAIN)]


def check(number: int, python: str, wanted: list[str], tests: list[str], scratch: Path) -> bool:
    """Make one environment and run the tests there."""
    folder = scratch / str(number)
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    inside = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(inside), "install"]
    quiet = ["-q", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, *quiet, *wanted, *TOOLS], check=True)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "RPUKIT_CACHE_DIR": str(folder / "cache"),
        "RPUKIT_NUM_THREADS": "1",
        "RPUKIT_SWEEPS": "all",  # what was chosen here
    }
    arguments = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        [inside, *arguments], cwd=ROOT, env=environment, text=True, capture_output=True
    )
    names = "import sys, numpy, scipy, numba; print(sys.version.split()[0], *("
    names += "f'{m.__name__} {m.__version__}' for m in (numpy, scipy, numba)), sep=', ')"
    versions = subprocess.run([inside, "-c", names], text=True, capture_output=True).stdout.strip()
    lines = done.stdout.strip().splitlines() or [done.stderr]
    print(f"Python {versions}: {lines[-1]}")
    if done.returncode:
        print("\n".join(lines[-60:]), done.stderr)
    return done.returncode == 0


def main() -> int:
    """Check the oldest and the newest versions, side by side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="all tests; about 20 minutes")
    today = datetime.now(UTC).toordinal()
    parser.add_argument("--day", type=int, default=today, help=f"default: today, {today}")
    arguments = parser.parse_args()
    pythons = [python for python in map(find_python, PYTHONS) if python]
    if len(pythons) < len(PYTHONS):
        print(f"of Python {', '.join(PYTHONS)} only {len(pythons)} are here: {', '.join(pythons)}")
    work = [(pythons[0], oldest()), (pythons[-1], newest())]
    everything = ["tests", "-k", "not on_cpu"]
    tests = [everything if arguments.all else chosen(k, arguments.day) for k in range(2)]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        done = [
            pool.submit(check, k, python, wanted, tests[k], Path(scratch))
            for k, (python, wanted) in enumerate(work)
        ]
        return 0 if False not in [one.result() for one in done] else 1


if __name__ == "__main__":
    sys.exit(main())
