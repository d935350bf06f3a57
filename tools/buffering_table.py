"""Print single, double and automatic buffering side by side, as Markdown, in the cycle model.

    python tools/buffering_table.py [--l1 BYTES ...] [--run] [FOLDER ...]

A folder holds ``*_train/network.onnx``, ``*_train/inputs.npz`` and ``*_optimizer/network.onnx``;
default: the models that travel with the tests. With ``--run`` every plan is written as C, built
and run with copies at issue, at wait and in mixed order: the cycles are those that it counts,
and a second table has lines of C, seconds to compile and bytes of the program.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from rpukit import tiled

MODELS = Path(__file__).parents[1] / "tests" / "data" / "tiled" / "models"
ORDERS = (["at_issue"], ["at_wait"], ["mixed", "1"])


def read(folder: Path) -> tiled.Training:
    """Read a training graph and the initial values of its parameters."""
    files = [next(folder.glob(f"*_{kind}/network.onnx")) for kind in ("train", "optimizer")]
    training = tiled.training_from_onnx(*files)
    return replace(training, initial=start(training, inputs(folder)))


def inputs(folder: Path) -> dict[str, np.ndarray]:
    with np.load(next(folder.glob("*_train/inputs.npz")), allow_pickle=False) as file:
        return dict(file)


def start(training: tiled.Training, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: fitting(training, name, arrays[f"arr_{2 + k:04}"])
        for k, name in enumerate(training.parameters)
    }


def fitting(training: tiled.Training, name: str, value: np.ndarray) -> np.ndarray:
    tensor = training.train.tensors[name]
    return np.asarray(value, tensor.dtype).reshape(tensor.shape)


def batches(training: tiled.Training, arrays: dict[str, np.ndarray]) -> list[tuple]:
    found = []
    for k in range(int(arrays["meta_n_batches"][0])):
        place = k % int(arrays["meta_data_size"][0])
        ahead = f"mb{place}_" if place else ""
        pair = (arrays[f"{ahead}arr_0000"], arrays[f"{ahead}arr_0001"])
        names = (training.data, training.target)
        found.append(tuple(fitting(training, n, v) for n, v in zip(names, pair, strict=True)))
    return found


def network_files(target: Path) -> list[Path]:
    """List the sources without weights and the example."""
    example = ("weights.c", "batches.c", "batches.h", "main.c")
    return [path for path in target.glob("*.[ch]") if path.name not in example]


def run(plan: tiled.Plan, training: tiled.Training, folder: Path) -> tuple[int, float, int]:
    """Write, build and run a plan; return its lines of C, compile time and program size."""
    arrays = inputs(folder)
    mini, every = batches(training, arrays), int(arrays.get("meta_n_accum", [1])[0])
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        tiled.generate_c(plan, training, target, mini, n_accumulate=every)
        lines = sum(len(p.read_text().split("\n")) - 1 for p in network_files(target))
        begin = time.perf_counter()
        subprocess.run(["make", "-s", "network"], cwd=target, check=True)
        taken = time.perf_counter() - begin
        want = [
            plan.programs[0].cycles * len(mini),
            plan.programs[1].cycles * (len(mini) // every),
        ]
        for order in ORDERS:
            done = subprocess.run(
                ["./network", *order], cwd=target, check=False, capture_output=True, text=True
            )
            found = re.search(r"train_cycles=(\d+) opt_cycles=(\d+) errors=0", done.stdout)
            if found is None or [int(v) for v in found.groups()] != want:
                sys.exit(f"{folder.name}, {plan.buffering}, {order}: {done.stdout}{done.stderr}")
        return lines, taken, (target / "network").stat().st_size


def main() -> None:
    """Plan all models under the three strategies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="*", type=Path, default=sorted(MODELS.iterdir()))
    parser.add_argument("--l1", nargs="*", type=int, default=[16_000])
    parser.add_argument("--levels", default="siracusa_l2", choices=("siracusa_l2", "siracusa_l3"))
    parser.add_argument("--run", action="store_true", help="write, build and run the C as well")
    args = parser.parse_args()
    plans, programs = {}, []
    for folder in args.folder:
        training = read(folder)
        for l1 in args.l1:
            label = f"{folder.name}, {l1}"
            levels = getattr(tiled, args.levels)(l1=l1)
            plans[label] = {
                strategy: tiled.plan(training, levels, buffering=strategy)
                for strategy in ("single", "double", "auto")
            }
            if args.run:
                for strategy, plan in plans[label].items():
                    lines, taken, size = run(plan, training, folder)
                    programs.append(f"| {label} | {strategy} | {lines} | {taken:.1f} | {size} |")
    print(tiled.compare_plans(plans))
    if programs:
        print("\n| test | buffers | lines of C | compile, s | bytes |\n|---|---|---|---|---|")
        print("\n".join(programs))


if __name__ == "__main__":
    main()
