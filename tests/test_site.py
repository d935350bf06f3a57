"""Tools of the site: the checker of links, and the one of notebooks, notice what is wrong."""

import importlib.util
import re
from pathlib import Path

import pytest

from tools import check_links

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)(?:```+|:::+)(\w*)$", re.M)


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#there">x</a><img src="none.png">'
        '<a href="https://doi.org/1">x</a><a href="#">x</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="a.html">x</a>')
    wrong, count = check_links.faults(tmp_path)
    assert wrong == [
        "a.html: no anchor for b.html#there",
        "a.html: no file for none.png",
    ]
    assert count == 5


def test_a_notebook_that_says_something_else_is_found():
    if importlib.util.find_spec("jupytext") is None:
        pytest.skip("needs jupytext: make .venv/.stamp-dev")
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    from tools.check_notebooks import differences

    def notebook(text, figures=0, tags=()):
        outputs = [new_output("stream", text=text)]
        outputs += [
            new_output("display_data", {"image/png": "", "text/plain": "a figure"})
        ] * figures
        return new_notebook(
            cells=[new_code_cell("f()", outputs=outputs, metadata={"tags": list(tags)})]
        )

    assert not list(differences(notebook("1\n"), notebook("1\n")))
    assert not list(differences(notebook("1\n", tags=["varies"]), notebook("2\n")))
    (text,) = differences(notebook("1\n"), notebook("2\n"))
    assert "the run prints\n1" in text
    (figures,) = differences(notebook("1\n", 1, ["varies"]), notebook("1\n", 2))
    assert "1 figures, the file 2" in figures


def test_no_python_escapes_the_runs():
    """Blocks of Python are marked as such, at the margin, where test_doc_blocks.py looks."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    wrong = []
    for page in pages:
        if {"_build", "generated", "notebooks"} & {*page.parts}:
            continue
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            indent, language = found.groups()
            if (indent and language) or language in ("py", "python3", "ipython", "pycon"):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{page.relative_to(ROOT)}:{line}: {found[0]}")
    assert not wrong, "\n".join(wrong)


def test_links_of_pages_lead_to_files_of_the_repository():
    """Readers of the repository follow them, too."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")]
    pages += (ROOT / "docs" / "tutorials").glob("*.py")
    wrong = []
    for page in pages:
        if {"_build", "generated", "notebooks"} & {*page.parts}:
            continue
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:")) and not (page.parent / target).exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)
