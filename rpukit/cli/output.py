"""What commands print: tables in 80 columns, and JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from rpukit.errors import ParameterError
from rpukit.plot.axes import pyplot

__all__ = ["WIDTH", "print_json", "print_table", "print_text", "save_figure", "wrapped"]

WIDTH = 80  # characters of a line


def wrapped(text: str, indent: int = 0, width: int = WIDTH) -> list[str]:
    """Break a text into lines at spaces, lines after the first one indented.

    Parameters
    ----------
    text : str
    indent, width : int

    Returns
    -------
    list of str
    """
    found = []
    for line in text.splitlines() or [""]:
        found += textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        ) or [""]
    return found


def print_text(text: str, indent: int = 0) -> None:
    """Print a text in lines of 80 characters.

    Parameters
    ----------
    text : str
    indent : int
        Of lines after the first.
    """
    print("\n".join(wrapped(text, indent)))


def print_table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print rows with aligned columns; the last one is broken where it would pass the margin.

    Parameters
    ----------
    rows : sequence of sequence of str
    right : sequence of int
        Columns that are aligned to the right.
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]) - 1)]
    margin = sum(widths) + 2 * len(widths)
    for row in rows:
        cells = [
            f"{text:>{width}}" if k in right else f"{text:{width}}"
            for k, (text, width) in enumerate(zip(row[:-1], widths, strict=True))
        ]
        parts = _parts(row[-1], max(20, WIDTH - margin))
        print("  ".join([*cells, parts[0]]).rstrip())
        for part in parts[1:]:
            print(" " * margin + part)


def _parts(text: str, width: int) -> list[str]:
    """Break a cell at spaces or, in a dotted name that is too long, after a dot."""
    words = [
        re.sub(r"\.(?=\w)", ".\0 ", word) if len(word) > width and "/" not in word else word
        for word in text.split(" ")
    ]
    parts = wrapped(" ".join(words), width=width)
    return [part.replace("\0 ", "").replace("\0", "") for part in parts]


def print_json(value: Any) -> None:
    """Print a value as JSON with an indent.

    Parameters
    ----------
    value : object
    """
    print(json.dumps(value, indent=1, ensure_ascii=False))


def save_figure(figure: Any, path: str) -> None:
    """Write a figure of Matplotlib to a file, and close it.

    Parameters
    ----------
    figure : matplotlib Figure
    path : str

    Raises
    ------
    ParameterError
        If Matplotlib does not write the format that the name asks for.
    """
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise ParameterError(f"--figure {path}: {error}") from None
    finally:
        pyplot().close(figure)
