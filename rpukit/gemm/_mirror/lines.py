"""Mirror of copies to aligned rows."""

from __future__ import annotations

from rpukit._exact.jit import jit


@jit
def align_rows(start, stop, words, room):
    """Rows ``start`` to ``stop - 1``: those of `words`, and zeros up to the length of `room`'s."""
    n_column = words.shape[1]
    for i in range(start, stop):
        for j in range(room.shape[1]):
            room[i, j] = words[i, j] if j < n_column else 0
