"""Run notebook pairs and check that each .ipynb holds what the run gives.

    python tools/check_notebooks.py notebooks/*.py docs/tutorials/*.py
    python tools/check_notebooks.py --write notebooks/01_device_response.py

The ``.py`` (py:percent) is the source. Each ``.ipynb`` must have its cells, print what its outputs
say, and show as many figures. ``--write`` writes the ``.ipynb`` instead. Cells with the tag
``varies`` (times, results of other libraries) run, but their text is not compared. ``--every 2``
runs every second pair, the others on the next day; both files of all pairs must have the same
cells.
"""

import argparse
import base64
import io
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image

MOST_BYTES = 4 << 20  # all notebooks together: clones stay small
MOST_EACH = 900_000  # one notebook: GitHub shows it at once
SECONDS = 600
FIGURE = "image/png"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def cells(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Extract the parts of a notebook on which the pair must agree."""
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def smaller(figure: str) -> str:
    """Reduce a PNG to a palette of 256 colours."""
    image = Image.open(io.BytesIO(base64.b64decode(figure))).convert("RGB")
    out = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def kept(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Keep what readers see: printed text in one piece, values and figures."""
    found: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name != "stdout":
                continue
            if found and found[-1].output_type == "stream":
                found[-1].text += output.text  # pieces come as the kernel flushes
            else:
                found.append(output)
            continue
        data = {kind: output.data[kind] for kind in output.data if kind != "text/latex"}
        if FIGURE in data:
            data = {FIGURE: smaller(data[FIGURE]), "text/plain": "a figure"}
        elif "text/plain" in data:
            data["text/plain"] = ADDRESS.sub("", data["text/plain"])
        found.append(nbformat.v4.new_output("display_data", data=data))
    return found


def run(source: Path) -> NotebookNode:
    """Execute a notebook in its own folder; its outputs are reduced to what readers see."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # CI sets Agg
    notebook = jupytext.read(source)
    notebook.metadata.pop("jupytext", None)
    folder = {"metadata": {"path": str(source.parent)}}
    quiet = ["--log-level=ERROR"]  # kernels warn that they listen to this machine
    NotebookClient(notebook, timeout=SECONDS, resources=folder, extra_arguments=quiet).execute()
    number = 0
    for k, cell in enumerate(notebook.cells):
        cell.id = f"cell-{k}"
        if cell.cell_type != "code":
            continue
        number += 1
        cell.execution_count = number
        cell.metadata.pop("execution", None)
        cell.outputs = kept(cell.outputs)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def text(cell: NotebookNode) -> str:
    """Join all that a cell prints and returns."""
    return "".join(
        one.text if one.output_type == "stream" else one.data.get("text/plain", "") + "\n"
        for one in cell.outputs
    )


def differences(found: NotebookNode, stored: NotebookNode) -> Iterator[str]:
    """Compare a run with what the file holds, cell by cell."""
    for got, want in zip(found.cells, stored.cells, strict=True):
        if got.cell_type != "code":
            continue
        title = got.source.strip().split("\n")[0]
        figures = [sum(FIGURE in one.get("data", {}) for one in c.outputs) for c in (got, want)]
        if figures[0] != figures[1]:
            yield f"cell {title!r}: the run shows {figures[0]} figures, the file {figures[1]}"
        if "varies" not in got.metadata.get("tags", []) and text(got) != text(want):
            yield f"cell {title!r}: the run prints\n{text(got)}the file says\n{text(want)}"


def check(source: Path, executes: bool) -> list[str]:
    """List the faults of one pair."""
    paired = source.with_suffix(".ipynb")
    again = f"run python tools/check_notebooks.py --write {source}"
    if not paired.exists():
        return [f"{source}: no {paired.name}; {again}"]
    if paired.stat().st_size > MOST_EACH:
        return [f"{paired}: {paired.stat().st_size} bytes, at most {MOST_EACH}: fewer figures"]
    stored = nbformat.read(paired, as_version=4)
    if cells(jupytext.read(source)) != cells(stored):
        return [f"{paired}: not in sync with {source.name}; {again}"]
    if not executes:
        return []
    try:
        found = run(source)
    except CellExecutionError as error:
        return [f"{source}: {error}"]
    return [f"{paired}: {line}; {again}" for line in differences(found, stored)]


def write(source: Path, executes: bool) -> list[str]:
    """Write the .ipynb of a source, with its outputs."""
    if not executes:
        return []
    try:
        nbformat.write(run(source), source.with_suffix(".ipynb"))
    except CellExecutionError as error:
        return [f"{source}: {error}"]
    return []


def main() -> int:
    """Check or write all pairs, and see that no .ipynb is without its .py."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write the .ipynb files")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks at a time")
    parser.add_argument("--every", type=int, default=1, help="run one pair of so many today")
    args = parser.parse_args()
    today = datetime.now(UTC).toordinal()
    executes = [(k + today) % args.every == 0 for k in range(len(args.sources))]
    with ProcessPoolExecutor(args.jobs) as pool:
        wrong = [
            line
            for found in pool.map(write if args.write else check, args.sources, executes)
            for line in found
        ]
    pairs = [p for folder in {s.parent for s in args.sources} for p in folder.glob("*.ipynb")]
    wrong += [f"{p}: no {p.stem}.py beside it" for p in pairs if not p.with_suffix(".py").exists()]
    size = sum(path.stat().st_size for path in pairs)
    if size > MOST_BYTES:
        wrong.append(f"notebooks: {size} bytes together, at most {MOST_BYTES}")
    done = "written" if args.write else "run as their files say"
    number = f"{sum(executes)} of {len(args.sources)}" if args.every > 1 else len(executes)
    print("\n".join(wrong) or f"{number} notebooks {done}, {size / 1e6:.1f} MB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
