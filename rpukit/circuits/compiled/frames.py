"""Tables of pandas, read as numbers: categories as their codes, what is missing as NaN.

pandas is never imported: who hands in a table has it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from rpukit.errors import DTypeError, ParameterError

__all__ = ["categories_of", "is_frame", "numbers_of"]


def is_frame(x: object) -> bool:
    """Whether x is a table of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, getattr(pandas, "DataFrame", ()))


def categories_of(frame: Any) -> dict[int, list[Any]]:
    """List the categories of each column that has them, by the column's place."""
    found = {}
    for place, dtype in enumerate(frame.dtypes):
        if hasattr(dtype, "categories"):
            found[place] = dtype.categories.tolist()
    return found


def numbers_of(frame: Any, categories: Mapping[int, list[Any]] | None = None) -> Any:
    """Make a table of plain numbers, with the same columns.

    Parameters
    ----------
    frame : pandas.DataFrame
    categories : mapping of int to list, optional
        Categories of columns by their place, whose places in the list are the codes; default:
        each column's own.

    Returns
    -------
    pandas.DataFrame
        Columns that are plain numbers as they are, others float64.

    Raises
    ------
    DTypeError
        For a column of anything else, such as text.
    ParameterError
        For a value that is not among the categories.
    """
    known = categories_of(frame) if categories is None else categories
    columns = {}
    for place, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        column = frame.iloc[:, place]
        if place in known:
            columns[place] = _codes(column, known[place], name)
        elif hasattr(dtype, "categories"):
            raise ParameterError(f"column {name!r} has categories, that of the fit had not")
        elif isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            columns[place] = column.to_numpy()
        elif getattr(dtype, "kind", "O") in "biuf":  # Int64, Float32, boolean: they know NA
            columns[place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            raise DTypeError(
                f"column {name!r} holds {dtype}, need numbers or categories: give "
                f'frame.astype({{{name!r}: "category"}})'
            )
    made = type(frame)(columns, index=frame.index)
    made.columns = frame.columns
    return made


def _codes(column: Any, categories: list[Any], name: Any) -> np.ndarray:
    """Places of values in a list of categories; NaN where a value is missing."""
    values = column.astype(object)
    missing = column.isna().to_numpy()
    places = {value: float(code) for code, value in enumerate(categories)}
    codes = np.array([places.get(v, -1.0) for v in values], np.float64)
    unknown = ~missing & (codes < 0)
    if unknown.any():
        raise ParameterError(
            f"column {name!r}: {values.iloc[int(unknown.argmax())]!r} is not among the categories "
            f"{categories}"
        )
    codes[missing] = np.nan
    return codes
