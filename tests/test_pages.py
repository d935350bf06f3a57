"""The pages on solvers, estimators and clusters: their code runs, and prints what they say."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]\d+)?")


def printed_and_promised(page: str) -> tuple[list[str], list[str]]:
    """Run the Python of a page; give what it prints, and what its block of text says."""
    text = (DOCS / page).read_text(encoding="utf-8")
    out, namespace = io.StringIO(), {"__name__": "__main__"}
    with redirect_stdout(out):
        for code in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(compile(code, page, "exec"), namespace)
    (promised,) = re.findall(r"```text\n(.*?)```", text, re.S)
    return out.getvalue().splitlines(), promised.splitlines()


@pytest.mark.parametrize(
    # Errors of a solver, whose vectors pass the BLAS, may be some other small number; shares of
    # 359 samples may differ by one or two of them where scikit-learn orders its data otherwise.
    ("page", "factor", "share"),
    [("solvers.md", 30.0, 0.0), ("estimators.md", 1.0, 1.0), ("distributed.md", 1.0, 0.0)],
)
def test_page_prints_what_it_says(page, factor, share):
    printed, promised = printed_and_promised(page)
    assert len(printed) == len(promised) > 2
    for got, want in zip(printed, promised, strict=True):
        assert NUMBER.sub("#", got) == NUMBER.sub("#", want)
        for a, b in zip(NUMBER.findall(got), NUMBER.findall(want), strict=True):
            a, b = float(a), float(b)
            near = abs(a - b) <= share or (a > 0 and b > 0 and 1 / factor <= a / b <= factor)
            assert near, f"{page}: prints {got!r}, says {want!r}"
