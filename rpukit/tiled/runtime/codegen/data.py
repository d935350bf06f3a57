"""Data of generated C: memory, tensors, weights, and the mini-batches of the example."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan
from rpukit.tiled.runtime.codegen.tables import MADE, comment, wrapped
from rpukit.tiled.runtime.executor import Executor

SECTIONS = '#ifdef HAS_SECTIONS\n#include "sections.h"\n#endif\n\n'

__all__ = ["Tensors", "batches_text", "memory_text"]


class Tensors:
    """Tensors that a user of generated C reads and writes, under generated names.

    Parameters
    ----------
    executor : Executor
    training : Training
    lasting : dict of str to array
        Parameters, accumulators and state before training.

    Notes
    -----
    A user's name may not be valid C: it stands in comments alone, and in ``names.json``.
    """

    def __init__(
        self, executor: Executor, training: Training, lasting: dict[str, np.ndarray]
    ) -> None:
        self._executor = executor
        self._names: dict[tuple[int, str], str] = {}
        own = [(n, 0 if n in training.train.tensors else 1) for n in lasting]
        constants = [
            (name, k, value)
            for k, graph in enumerate((training.train, training.optimiser))
            for name, value in graph.constants.items()
            if executor.has_home(name, k)
        ]
        self.values = [(n, k, lasting[n]) for n, k in own] + constants
        self.groups = {
            "input": [(name, 0) for name in training.batch],
            "weight": [(name, k) for name, k, _ in self.values],
            "final": own,
        }
        self.single = {"reset": training.reset, "loss": training.loss}

    def _row(self, name: str, program: int = 0) -> str:
        levels = [level.name for level in self._executor.plan.hierarchy.levels]
        home = self._executor.home(name, program)
        size = self._executor.graphs[program].tensors[name].nbytes
        own = self._names.setdefault((program, name), f"tensor_{len(self._names)}")
        return f'{{"{own}", {levels.index(home.level)}, {home.address}, {size}}}'

    def text(self) -> str:
        """Write the places and sizes of all tensors."""
        text = [MADE, '#include "network.h"\n\n/* Name, level, address, bytes. */\n']
        for group, names in self.groups.items():
            body = "\n".join(f"    {self._row(*pair)}, /* {comment(pair[0])} */" for pair in names)
            text.append(f"const tensor_t {group}_tensors[] = {{\n{body}\n}};\n\n")
        for group, name in self.single.items():
            text.append(f"const tensor_t {group}_tensor = {self._row(name)};\n")
        return "".join(text)

    def weights(self) -> str:
        """Write the values of weights and constants that are not all zero."""
        text = [MADE, '#include "network.h"\n\n', SECTIONS]
        text.append("#ifndef WEIGHTS\n#define WEIGHTS /* the section of constants */\n#endif\n\n")
        names = []
        for k, (name, program, value) in enumerate(self.values):
            raw = np.ascontiguousarray(value).tobytes()
            if any(raw):
                names.append(f"weight_{k}")
                kind = self._executor.graphs[program].tensors[name]
                text.append(f"/* {comment(name)}: {kind.dtype} {comment(str(kind.shape))} */\n")
                text.append(f"static const uint32_t weight_{k}[] WEIGHTS = {_words(raw)};\n\n")
            else:
                names.append("0")
        body = "\n".join(f"    {line}" for line in wrapped(", ".join(names)))
        text.append(f"static const void *const weights[N_WEIGHTS] = {{\n{body}\n}};\n\n")
        text.append(
            "__attribute__((weak)) const void *network_weight(uint32_t k) { return weights[k]; }\n"
        )
        return "".join(text)

    def counts(self) -> dict[str, int]:
        """Return how many tensors each group has."""
        return {
            f"N_{group.upper()}{'S' * (group != 'final')}": len(names)
            for group, names in self.groups.items()
        }

    def names_json(self, plan: BasePlan) -> str:
        """Write the user's names of the tensors and programs that are renamed in C."""
        programs = [program.name for program in plan.programs]
        tensors = {own: {"name": name, "program": k} for (k, name), own in self._names.items()}
        return json.dumps({"programs": programs, "tensors": tensors}, indent=1) + "\n"


def _words(raw: bytes) -> str:
    """Write bytes as an array of 32-bit words."""
    padded = raw + bytes(-len(raw) % 4)
    words = [f"0x{v:x}" if v else "0" for v in np.frombuffer(padded, "<u4").tolist()]
    rows = [", ".join(words[k : k + 12]) for k in range(0, len(words), 12)]
    return "{\n    " + ",\n    ".join(rows) + "\n}"


def batches_text(
    training: Training,
    batches: Sequence[Sequence[Any]],
    losses: np.ndarray,
    final: Sequence[np.ndarray],
    n_accumulate: int,
) -> dict[str, str]:
    """Write the mini-batches of the example, with the losses and final values to expect."""
    kinds = [training.train.tensors[name].dtype for name in training.batch]
    text = [MADE, '#include "batches.h"\n\n', SECTIONS]
    text.append("#ifndef BATCHES\n#define BATCHES /* their section */\n#endif\n\n")
    rows = []
    for step, batch in enumerate(batches):
        names = [f"input_{step}_{k}" for k in range(len(kinds))]
        for name, value, kind in zip(names, batch, kinds, strict=True):
            raw = np.ascontiguousarray(np.asarray(value, kind)).tobytes()
            text.append(f"static const uint32_t {name}[] BATCHES = {_words(raw)};\n")
        rows.append(f"    {{{', '.join(names)}}},")
    body = "\n".join(rows or ["    {0}"])
    text.append(f"\nconst void *const batches[][N_INPUTS] = {{\n{body}\n}};\n")
    bits = np.ascontiguousarray(losses, np.float32).tobytes()
    text.append(f"const uint32_t expected_losses[] = {_words(bits) if bits else '{0}'};\n")
    sums = [zlib.crc32(np.ascontiguousarray(value).tobytes()) for value in final]
    text.append(f"const uint32_t expected_sums[] = {_words(np.array(sums, '<u4').tobytes())};\n")
    head = (
        f'{MADE}#ifndef BATCHES_H\n#define BATCHES_H\n\n#include "network.h"\n\n'
        f"#define N_STEPS {len(batches)}\n#define N_ACCUMULATE {n_accumulate}\n\n"
        "extern const void *const batches[][N_INPUTS];\n"
        "extern const uint32_t expected_losses[]; /* their bits */\n"
        "extern const uint32_t expected_sums[]; /* CRC-32 of final_tensors */\n\n"
        "#endif\n"
    )
    return {"batches.c": "".join(text), "batches.h": head}


def memory_text(plan: BasePlan) -> str:
    """Write the arenas, the blocks of the inner levels, and the links between levels."""
    levels = plan.hierarchy.levels
    text = [MADE, '#include "network.h"\n\n', SECTIONS]
    text.append(
        "/* Arenas, 8 bytes aligned, as labels need. A target's sections.h may define ARENA_k,\n"
        " * attributes of the arena of level k, or ARENA_k_AT, where the linker does not know\n"
        " * its memory. */\n"
    )
    for k, level in enumerate(levels):
        words = -(-plan.peaks[level.name] // 8) + 1
        text.append(f"#ifndef ARENA_{k}\n#define ARENA_{k}\n#endif\n#ifndef ARENA_{k}_AT\n")
        text.append(f"static uint64_t arena_{k}[{words}] ARENA_{k}; /* {comment(level.name)} */\n")
        text.append(f"#define ARENA_{k}_AT arena_{k}\n#endif\n")
    names = ", ".join(f"(uint8_t *)ARENA_{k}_AT" for k in range(len(levels)))
    sizes = ", ".join(str(8 * (-(-plan.peaks[level.name] // 8) + 1)) for level in levels)
    text.append(f"\nuint8_t *const arenas[N_LEVELS] = {{{names}}};\n")
    text.append(f"const uint32_t arena_bytes[N_LEVELS] = {{{sizes}}};\n\n")
    links = ", ".join(f"{{{v.setup}, {v.row}, {v.width}, {int(v.duplex)}}}" for v in levels)
    text.append(
        "/* For the checks of targets/host; linkers leave them out where they are not used. */\n"
    )
    text.append(f"const link_t links[N_LEVELS] = {{{links}}};\n")
    blocks = _blocks(plan)
    body = "\n".join(f"    {{{level}, {at}, {size}}}," for level, at, size in blocks)
    text.append(f"const block_t blocks[] = {{\n{body}\n}};\n")
    text.append(f"const uint32_t n_blocks = {len(blocks)};\n")
    return "".join(text)


def _blocks(plan: BasePlan) -> list[tuple[int, int, int]]:
    levels = [level.name for level in plan.hierarchy.levels]
    found = set()
    for op in plan.ops():
        for operand in op.operands:
            for place in operand.places:
                k = levels.index(place.level)
                found |= {(k, at, place.bytes) for at in place.addresses}
    for home in plan.homes:
        found.add((levels.index(home.level), home.address, home.bytes))
    return sorted(found)
