"""Draw the import graph of rpukit: ``python tools/draw_house.py [--out docs/images/house.png]``.

One panel has the packages of rpukit, the others the parts of those that have folders. The arrows
are the imports that the code has, those for type checkers and those inside functions included. An
arrow is left out where a way over other parts says the same. Each box has its number of files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from tests.test_layers import LAYER_OF, PACKAGE, PARTS, ROOT, graph_of

Graph = dict[str, set[str]]
# Of the packages the files of the lowest layer are one box: all others import them.
LOWEST = "errors, random, ..."
COLOURS = {"package": "#dbe7f3", "folder": "#e3efdc", "file": "#f4f1e6"}


def parts_of(folder: Path) -> Graph:
    """Map each part of a folder to those that it imports."""
    graph = {mine: set(targets) for mine, targets in graph_of(folder).items()}
    graph.pop("__init__", None)
    return {mine: targets - {"__init__"} for mine, targets in graph.items()}


def packages() -> Graph:
    """Map each package and file of rpukit to those that it imports; the lowest files are one."""
    graph: Graph = {}
    for mine, targets in parts_of(PACKAGE).items():
        graph.setdefault(_joined(mine), set()).update(map(_joined, targets))
    return {mine: targets - {mine} for mine, targets in graph.items()}


def _joined(name: str) -> str:
    low = LAYER_OF[name] == 1 and not (PACKAGE / name).is_dir()
    return LOWEST if low else name


def reached(graph: Graph, start: str) -> set[str]:
    """List all that a part imports, directly or indirectly."""
    seen: set[str] = set()
    left = [start]
    while left:
        for target in graph[left.pop()] - seen:
            seen.add(target)
            left.append(target)
    return seen


def reduced(graph: Graph) -> Graph:
    """Remove arrows that paths over other parts imply (transitive reduction)."""
    return {
        mine: {t for t in targets if not any(t in reached(graph, o) for o in targets - {t})}
        for mine, targets in graph.items()
    }


def rows_of(graph: Graph) -> list[list[str]]:
    """Sort the parts into rows, each above all that it imports, beside what it is near to."""
    depth: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((height(t) for t in sorted(graph[name])), default=-1)
        return depth[name]

    for name in sorted(graph):
        height(name)
    rows = [sorted(n for n in graph if depth[n] == k) for k in range(max(depth.values()) + 1)]
    place = {name: k - len(row) / 2 for row in rows for k, name in enumerate(row)}
    for _ in range(8):
        for row in rows:
            near = {n: [place[m] for m in graph if m in graph[n] or n in graph[m]] for n in row}
            row.sort(key=lambda n: (sum(near[n]) / max(len(near[n]), 1), n))
            place.update((name, k - (len(row) - 1) / 2) for k, name in enumerate(row))
    return rows


def label(folder: Path, name: str) -> str:
    """Name of a part; of a folder also its number of files."""
    title = {"_mirror": "mirrors"}.get(name, name)
    files = [p for p in (folder / name).rglob("*.py") if p.name != "__init__.py"]
    return f"{title}  {len(files)}" if (folder / name).is_dir() else title


def draw(axes: plt.Axes, graph: Graph, folder: Path, title: str) -> None:
    """Draw boxes in rows, and arrows to what they import."""
    rows, spots = rows_of(graph), {}
    for y, row in enumerate(rows):
        for k, name in enumerate(row):
            spots[name] = ((k + 0.5) / len(row) + 0.02 * (y % 2), y)
    boxes = {}
    for name, (x, y) in spots.items():
        kind = "folder" if (folder / name).is_dir() else "file"
        kind = "package" if kind == "folder" and folder == PACKAGE else kind
        box = {"boxstyle": "round,pad=0.35", "fc": COLOURS[kind], "ec": "#6b7280", "lw": 0.7}
        style = {"ha": "center", "va": "center", "fontsize": 8, "bbox": box, "zorder": 2}
        boxes[name] = axes.text(x, y, label(folder, name), **style).get_bbox_patch()
    for mine, targets in reduced(graph).items():
        for target in targets:
            ends = {"patchA": boxes[mine], "patchB": boxes[target], "shrinkA": 1, "shrinkB": 1}
            arrow = {"arrowstyle": "-|>", "color": "#8a8f98", "lw": 0.8, **ends}
            axes.annotate("", spots[target], spots[mine], arrowprops=arrow, zorder=1)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlim(-0.02, 1.04)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.axis("off")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/house.png")
    args = parser.parse_args()
    figure = plt.figure(figsize=(13, 15), layout="constrained")
    top, *below = figure.subfigures(3, 1, height_ratios=[1.1, 1, 1])
    title = "rpukit: an arrow goes from what imports to what is imported"
    draw(top.subplots(), packages(), PACKAGE, title)
    panels = [axes for part in below for axes in part.subplots(1, 2)]
    for axes, name in zip(panels, PARTS, strict=True):
        draw(axes, parts_of(PACKAGE / name), PACKAGE / name, f"rpukit/{name}")
    figure.canvas.draw()  # arrows end at boxes whose sizes are known from here on
    figure.savefig(args.out, dpi=90, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
