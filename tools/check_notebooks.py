"""Check that each notebook pair agrees and that the .ipynb holds no outputs.

    python tools/check_notebooks.py notebooks/01_device_response.py ...

The ``.py`` (py:percent) is the source; ``jupytext --sync`` writes the other.
"""

import sys
from pathlib import Path

import jupytext
import nbformat


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Extract the parts of a notebook on which the pair must agree."""
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def check(source: Path) -> list[str]:
    """List the faults of one pair."""
    paired = source.with_suffix(".ipynb")
    if not paired.exists():
        return [f"{source}: no {paired.name}; run jupytext --sync {source}"]
    notebook = nbformat.read(paired, as_version=4)
    wrong = []
    if cells(jupytext.read(source)) != cells(notebook):
        wrong.append(f"{paired}: not in sync with {source.name}; run jupytext --sync {source}")
    if any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells):
        wrong.append(f"{paired}: holds outputs; run nbstripout {paired}")
    return wrong


def main(names: list[str]) -> int:
    """Check all pairs, and that no .ipynb is without its .py."""
    sources = [Path(name) for name in names]
    wrong = [line for source in sources for line in check(source)]
    for path in Path("notebooks").glob("*.ipynb"):
        if path.with_suffix(".py") not in sources:
            wrong.append(f"{path}: no {path.stem}.py beside it")
    if not sources:
        wrong.append("no notebooks were given")
    print("\n".join(wrong) or f"{len(sources)} notebook pair(s) in sync, without outputs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
