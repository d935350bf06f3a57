"""Write constraints.txt: one pinned version of every package that the set-ups need.

    python tools/make_constraints.py python3.11 python3.12 python3.13 > constraints.txt

Each interpreter resolves the extras by itself (nothing is installed); where the answers differ, a
line gets a marker for the Python it is for.
"""

import json
import subprocess
import sys
from collections import defaultdict

WANTED = [".[dev,docs,torch]", "pip", "setuptools", "wheel"]
# PyTorch's builds for the CPU, which need no libraries of CUDA; "+cpu" ends their versions.
CPU_BUILDS = "https://download.pytorch.org/whl/cpu/torch/"


def resolve(python: str) -> tuple[str, dict[str, str]]:
    """Ask one interpreter's pip what it would install: Python version, {package: version}."""
    options = [
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        "--find-links",
        CPU_BUILDS,
    ]
    done = subprocess.run(
        [python, "-m", "pip", "install", *options, *WANTED],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    report = json.loads(done.stdout)
    found = {p["metadata"]["name"]: p["metadata"]["version"] for p in report["install"]}
    found.pop("rpukit")
    plain = {name.lower(): version.partition("+")[0] for name, version in found.items()}
    return report["environment"]["python_version"], plain


def main(pythons: list[str]) -> None:
    """Print the constraints."""
    answers = dict(resolve(python) for python in pythons)
    packages: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for python, found in answers.items():
        for name, version in found.items():
            packages[name][version].append(python)
    print("# Written by tools/make_constraints.py for Python", ", ".join(answers))
    for name, versions in sorted(packages.items()):
        for version, needs in versions.items():
            if len(needs) == len(answers):
                print(f"{name}=={version}")
                continue
            marker = " or ".join(f'python_version == "{python}"' for python in needs)
            print(f"{name}=={version} ; {marker}")


if __name__ == "__main__":
    main(sys.argv[1:])
