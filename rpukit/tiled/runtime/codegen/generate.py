"""Code generator: a plan as C99 for microcontrollers, with a harness that checks every bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan
from rpukit.tiled.runtime.codegen.data import Tensors, batches_text, memory_text
from rpukit.tiled.runtime.codegen.loops import Step, looped, size_of
from rpukit.tiled.runtime.codegen.tables import Tables, tokens_of
from rpukit.tiled.runtime.trainer import Trainer

__all__ = ["generate_c"]

_LOOP_WORDS = 200  # of the code that runs loops
_NAMES = ("training_network", "optimizer_network")


def generate_c(
    plan: BasePlan,
    training: Training,
    folder: str | Path,
    batches: Sequence[Sequence[Any]],
    *,
    n_accumulate: int = 1,
) -> list[Path]:
    """Write C99 that trains by a plan, with an example that checks every bit.

    Parameters
    ----------
    plan : Plan
    training : Training
        The graphs that the plan was made of, with values of the parameters.
    folder : str or path
        Created if it is missing; files in it are replaced.
    batches : sequence of tuple of arrays
        Data and labels or targets of each mini-batch that the example trains with.
    n_accumulate : int

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    PlanError
        If a number does not fit the type of its table, the graph is not float32, or one of its ops
        has no kernel in C.

    Notes
    -----
    User names are no part of the code: tensors are called ``tensor_0`` and so on, ``names.json``
    has their names, and comments show these with all unusual characters written as ``%XX``.

    ``network.h`` has the calls of a user, ``dma.h`` and ``target.h`` what a target provides, and
    the folder ``targets`` some targets. The two files ``*_network.c`` are the programs of the
    plan, step by step; ``tables.c`` has the numbers of their tiles, ``kernels.c`` the kernels that
    they use. ``make run`` in the folder builds for the host and trains; ``cmake -DTARGET=...``
    builds for a target.

    Examples
    --------
    >>> import rpukit as rk
    >>> plan, training, batches = ...  # doctest: +SKIP
    >>> rk.tiled.generate_c(plan, training, "out", batches)  # doctest: +SKIP
    """
    trainer = Trainer(plan, training, n_accumulate=n_accumulate)
    executor = trainer._executor
    begin = trainer.parameters(everything=True)
    losses = trainer.fit(batches).astype(np.float32)
    end = trainer.parameters(everything=True)
    graphs = (training.train, training.optimiser)
    steps = [list(executor._tiles(p, g)) for p, g in zip(plan.programs, graphs, strict=True)]
    tables = Tables(plan, steps)
    tensors = Tensors(executor, training, begin)
    written, n_tokens = _programs(plan, tables, steps)
    files = dict(_fixed())
    for name, program, own in zip(_NAMES, plan.programs, written, strict=True):
        files[f"{name}.c"] = tables.network(name, program, own)
    files |= {"tables.c": tables.text(), "sizes.h": tables.sizes(n_tokens, tensors.counts())}
    files |= {"kernels.h": tables.kernels_h(), "kernels.c": tables.kernels_c()}
    files |= {"memory.c": memory_text(plan), "tensors.c": tensors.text()}
    files |= {"weights.c": tensors.weights(), "names.json": tensors.names_json(plan)}
    files |= batches_text(training, batches, losses, list(end.values()), n_accumulate)
    target = Path(folder)
    for name, text in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="ascii")
    return [target / name for name in files]


def _programs(
    plan: BasePlan, tables: Tables, ready: Sequence[Sequence[Any]]
) -> tuple[list[list[Step]], int]:
    """Write the programs, with loops where these save more than it takes to run them."""
    plain: list[list[Step]] = []
    short: list[list[Step]] = []
    counts = [1, 1]  # tokens without loops, and with them
    for program, own in zip(plan.programs, ready, strict=True):
        ways = []
        for again in (False, True):
            (small,), count = tokens_of([program], again)
            steps = tables.steps(program, own, small)
            if not again:
                plain.append(steps)
                counts[0] = max(counts[0], count)
            ways.append((looped(steps), count))
        best, count = min(ways, key=lambda way: size_of(way[0]))
        short.append(best)
        counts[1] = max(counts[1], count)
    if sum(map(size_of, plain)) - sum(map(size_of, short)) > _LOOP_WORDS:
        return short, counts[1]
    return plain, counts[0]


def _fixed() -> Iterator[tuple[str, str]]:
    """Iterate over the files that are the same for every plan, in ``targets`` too."""
    folder = resources.files("rpukit.tiled") / "c"
    yield from ((one.name, one.read_text("ascii")) for one in _files(folder))
    for target in sorted((folder / "targets").iterdir(), key=lambda one: one.name):
        for one in _files(target):
            yield f"targets/{target.name}/{one.name}", one.read_text("ascii")


def _files(folder: Traversable) -> list[Traversable]:
    return sorted((one for one in folder.iterdir() if one.is_file()), key=lambda one: one.name)
