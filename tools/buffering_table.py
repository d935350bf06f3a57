"""Print single, double and automatic buffering side by side, as Markdown, in the cycle model.

    python tools/buffering_table.py [--l1 BYTES ...] [FOLDER ...]

A folder holds ``*_train/network.onnx`` and ``*_optimizer/network.onnx``; default: the models that
travel with the tests.
"""

import argparse
from pathlib import Path

from rpukit import tiled

MODELS = Path(__file__).parents[1] / "tests" / "data" / "tiled" / "models"


def main() -> None:
    """Plan all models under the three strategies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="*", type=Path, default=sorted(MODELS.iterdir()))
    parser.add_argument("--l1", nargs="*", type=int, default=[16_000])
    parser.add_argument("--levels", default="siracusa_l2", choices=("siracusa_l2", "siracusa_l3"))
    args = parser.parse_args()
    plans = {}
    for folder in args.folder:
        files = [next(folder.glob(f"*_{kind}/network.onnx")) for kind in ("train", "optimizer")]
        graph = tiled.training_from_onnx(*files)
        for l1 in args.l1:
            levels = getattr(tiled, args.levels)(l1=l1)
            plans[f"{folder.name}, {l1}"] = {
                strategy: tiled.plan(graph, levels, buffering=strategy)
                for strategy in ("single", "double", "auto")
            }
    print(tiled.compare_plans(plans))


if __name__ == "__main__":
    main()
