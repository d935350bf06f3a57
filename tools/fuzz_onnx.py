"""Damage ONNX files and read them: the only outcomes are a graph and a typed error.

python tools/fuzz_onnx.py [--cases 1000] [--seconds 60] [--seed 0] [--case N] [--exports]

A case takes a model of `tests/data/tiled` (of `tests/tiled/exports` with ``--exports``), changes a
few fields (operators, attributes, names,
shapes, types, values, opsets) or bytes, and reads it. Each kind of failure is printed once with
its number, and `--case` runs that one alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rpukit.errors import RpukitError  # noqa: E402
from rpukit.tiled import from_onnx  # noqa: E402

SMALL = 1 << 16  # bytes of a file
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "NOTSET", "SAME_UPPER", "mean", "\0", "ä", "../x", "a" * 1000)


def models(folder: str = "tests/data/tiled") -> list[Path]:
    """Small files to start from."""
    found = sorted((ROOT / folder).rglob("*.onnx"))
    return [path for path in found if path.stat().st_size < SMALL]


def change_attribute(model: Any, rng: random.Random) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    node = rng.choice(nodes)
    attribute = rng.choice(node.attribute)
    kind = rng.randrange(7)
    if kind == 0:
        attribute.i = rng.choice(NUMBERS)
    elif kind == 1:
        attribute.ints[:] = [rng.choice(NUMBERS) for _ in range(rng.randrange(6))]
    elif kind == 2:
        attribute.f = rng.choice(FLOATS)
    elif kind == 3:
        attribute.s = rng.choice((b"\xff\xfe", *(text.encode() for text in TEXTS)))
    elif kind == 4:
        attribute.type = rng.randrange(15)
    elif kind == 5:
        attribute.name = rng.choice(TEXTS)
    else:
        node.attribute.remove(attribute)


def change_node(model: Any, rng: random.Random) -> None:
    graph, kind = model.graph, rng.randrange(7)
    if not graph.node:
        return
    node = rng.choice(graph.node)
    if kind == 0:
        node.op_type = rng.choice([*{n.op_type for n in graph.node}, *TEXTS, "If", "Loop"])
    elif kind == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*node.output, *TEXTS])
    elif kind == 2 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 3:
        node.input.append(rng.choice([*node.input, *TEXTS]))
    elif kind == 4 and node.output:
        node.output[0] = rng.choice([*node.input, *TEXTS])
    elif kind == 5:
        graph.node.remove(node)
    else:
        graph.node.append(node)


def change_tensor(model: Any, rng: random.Random) -> None:
    graph = model.graph
    values = [*graph.input, *graph.output, *graph.value_info]
    kind = rng.randrange(5)
    if kind == 0 and graph.initializer:
        one = rng.choice(graph.initializer)
        one.dims[:] = [rng.choice(NUMBERS) for _ in range(rng.randrange(5))]
    elif kind == 1 and graph.initializer:
        rng.choice(graph.initializer).data_type = rng.randrange(-1, 25)
    elif kind == 2 and graph.initializer:
        one = rng.choice(graph.initializer)
        one.raw_data = one.raw_data[: rng.randrange(len(one.raw_data) + 1)]
    elif kind == 3 and values:
        rng.choice(values).type.tensor_type.elem_type = rng.randrange(-1, 25)
    elif values:
        shape = rng.choice(values).type.tensor_type.shape
        if shape.dim:
            rng.choice(shape.dim).dim_value = rng.choice(NUMBERS)


def change_opset(model: Any, rng: random.Random) -> None:
    if model.opset_import:
        model.opset_import[0].version = rng.choice(NUMBERS)


CHANGES = (change_attribute, change_attribute, change_node, change_tensor, change_opset)


def damaged(path: Path, rng: random.Random) -> bytes:
    """Bytes of a file with a few changes."""
    if rng.random() < 0.2:
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(1, len(data) + 1)] if rng.random() < 0.3 else data)
    model = onnx.load(path)
    for _ in range(rng.randrange(1, 4)):
        rng.choice(CHANGES)(model, rng)
    return bytes(model.SerializeToString())


def outcome(case: int, seed: int, paths: list[Path], folder: str) -> str | None:
    """Read the file of a case; None, "refused", or the kind of a failure."""
    rng = random.Random(f"{seed}/{case}")
    try:
        data = damaged(rng.choice(paths), rng)
    except ValueError:  # protobuf takes no such value
        return None
    target = Path(folder) / "case.onnx"
    target.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            from_onnx(target)
    except RpukitError:
        return "refused"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "rpukit" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return f"{type(error).__name__} in {where}: {str(error)[:100]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--exports", action="store_true", help="start from exported models")
    given, counts = parser.parse_args(), Counter[str]()
    paths = models(*(["tests/tiled/exports"] if given.exports else []))
    seen: set[str] = set()
    end, n = time.monotonic() + given.seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        for case in range(given.cases) if given.case is None else (given.case,):
            if time.monotonic() > end:
                break
            n += 1
            found = outcome(case, given.seed, paths, folder)
            failed = found not in (None, "refused")
            counts["failures" if failed else found or "read"] += 1
            kind = (found or "").split(":")[0]
            if failed and kind not in seen:
                seen.add(kind)
                print(f"--seed {given.seed} --case {case}: {found}")
    print(f"{n} cases: {dict(counts)}, {len(seen)} kinds of failures")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
