"""Print what generated C takes on targets that QEMU has: instructions, code, stack and memory.

    python tools/run_on_targets.py [--target NAME ...] [--l1 BYTES] [--levels NAME] [FOLDER ...]

A folder holds ``*_train/network.onnx``, ``*_train/inputs.npz`` and ``*_optimizer/network.onnx``,
as for ``tools/buffering_table.py``. Each model is planned, written, built for each target, and run
for the mini-batches of its folder; a loss or a lasting value without the bits of the CPU
executor ends the program with status 1. Needs the packages that
`bash tools/install_cross_tools.sh` installs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buffering_table import batches, inputs, read

from rpukit import tiled
from rpukit.tiled import ops
from tests.tiled.c_targets import TOOLS, run_on

HEAD = (
    "model",
    "target",
    "instructions of a step",
    "per multiply-add",
    "of an update",
    "cycles in the model",
    "code and tables, bytes",
    "weights",
    "stack",
    "arenas",
)


def macs(training: tiled.Training) -> int:
    """Count the multiply-adds of one pass through the training graph."""
    found = 0
    for node in training.train.nodes:
        op = ops.find(node.op)
        if isinstance(op, ops.Tiled):
            space = op.space(node, training.train.tensors)
            found += space.macs(space.whole)
    return found


def main() -> None:
    """Plan, write, build and run every model for every target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--target", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--l1", type=int, default=128_000)
    parser.add_argument("--levels", default="siracusa_l2", choices=("siracusa_l2", "siracusa_l3"))
    args = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for folder in args.folder:
        training, arrays = read(folder), inputs(folder)
        mini, every = batches(training, arrays), int(arrays.get("meta_n_accum", [1])[0])
        plan = tiled.plan(training, getattr(tiled, args.levels)(l1=args.l1))
        with tempfile.TemporaryDirectory() as name:
            plan.generate_c(name, training, mini, n_accumulate=every)
            for target in args.target:
                run = run_on(Path(name), target, timeout=1200)
                if run.errors:
                    sys.exit(run.output)
                step = run.train / len(mini)
                row = (
                    folder.name,
                    target,
                    f"{step:,.0f}",
                    f"{step / macs(training):.1f}",
                    f"{run.update / (len(mini) // every):,.0f}",
                    f"{plan.programs[0].cycles:,}, {plan.programs[1].cycles:,}",
                    *(f"{n:,}" for n in (run.code, run.weights, run.stack, run.arenas)),
                )
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
