"""Code blocks of README.md and of the documentation run, page by page.

The blocks of one page share one namespace, as a reader would type them one after the other. A
comment ``<!-- needs: gpu -->`` (or ``torch``, ``export``) on the line above a block says what it
needs; where that is missing, the block is only compiled, and so is code of other libraries
(``other``), which CI does not install. Blocks of C, shell and text are ignored.
"""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import rpukit as rk
from rpukit import _device

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES = [p for p in PAGES if not {"_build", "generated", "notebooks"} & {*p.parts}]

BLOCK = re.compile(r"(?:<!-- needs: (\w+) -->\n)?^```python\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One block of a page: its first line there, its code, what it needs."""

    line: int
    code: str
    needs: str


def blocks(page: Path) -> list[Block]:
    """List the Python blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, m.start(2)) + 1, m[2], m[1] or "") for m in BLOCK.finditer(text)
    ]


def there(needs: str) -> bool:
    """Tell whether this machine has what a block needs."""
    if needs == "gpu":
        return _device.gpu_count() > 0
    if needs == "other":
        return False
    if needs == "export":  # PyTorch's exporter and the reader of its files
        return all(importlib.util.find_spec(name) for name in ("torch", "onnx"))
    assert needs in ("", "torch"), f"no such need: {needs}"
    return not needs or importlib.util.find_spec(needs) is not None


def run(page: Path) -> None:
    """Run the blocks of a page one after the other; tracebacks name the page and its lines."""
    namespace: dict = {"__name__": "__main__"}
    for block in blocks(page):
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if there(block.needs):
            exec(code, namespace)


WITH_CODE = [p.relative_to(ROOT).as_posix() for p in PAGES if blocks(p)]


@pytest.mark.parametrize("page", WITH_CODE)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run(ROOT / page)


def test_blocks_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n```python\nx = 1\n```\n<!-- needs: gpu -->\n```python\ny = x\n```\n")
    assert blocks(page) == [Block(3, "x = 1\n", ""), Block(7, "y = x\n", "gpu")]


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\ny = x + unknown\n```\n")
    with pytest.raises(NameError, match="unknown"):
        run(page)


def test_counts_in_the_readme_are_true():
    """Numbers of kernels, recorded cases and presets in README.md and docs/devices.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    kernels = len(list((ROOT / "kernels_cu").glob("*.cu")))
    recorded = sorted((ROOT / "tests/golden").glob("**/*.json"))
    cases = sum(len(json.loads(p.read_text(encoding="utf-8"))["cases"]) for p in recorded)
    devices, tiles = len(rk.presets.device_names()), len(rk.presets.config_names())
    assert f"rpukit has {kernels} kernels" in text
    assert f"hashes of {cases} cases" in text
    assert f"presets of {devices} devices and {tiles} tiles" in text
    assert f"There are {tiles} names;" in (ROOT / "docs/devices.md").read_text(encoding="utf-8")
