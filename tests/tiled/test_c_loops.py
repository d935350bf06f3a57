"""Loops of generated C: they are read back as the steps that they stand for."""

import re

import numpy as np
import pytest

from rpukit import tiled
from rpukit.tiled.runtime.codegen.loops import Step, depth_of, looped, size_of
from rpukit.tiled.runtime.codegen.tables import Tables, tokens_of
from tests.tiled.method_nets import mini_batches, network
from tests.tiled.test_codegen import assert_bits_and_cycles, build

KINDS = {"WAIT": 0, "COPY": 1, "TILE": 2}


def made(name, *numbers, at=(), far=()):
    """A step as the tables make it."""
    ends = [f"{'FAR' if f else 'NEAR'}({a})" for a, f in zip(at, far, strict=True)]
    line = f"    {name}({', '.join([*map(str, numbers), *ends])}),"
    words = len(numbers) + len(at) + sum(far)
    return Step((name, *numbers), tuple(at), tuple(far), words, (line,))


def words_of(steps, unit):
    """Words of a program, as the C compiler makes them of the macros."""
    found = []
    text = re.sub(r"/\*.*?\*/", "", "\n".join(line for one in steps for line in one.lines))
    for name, given, bare in re.findall(r"(\w+)\(((?:[^()]|\(\d+\))*)\)|(\d+)", text):
        if bare:
            found.append(int(bare))
            continue
        first, *rest = re.findall(r"NEAR\(\d+\)|FAR\(\d+\)|\d+", given)
        found.append((3 if name == "LOOP" else KINDS[name]) | int(first) << 2)
        for one in rest:
            number = int(re.search(r"\d+", one)[0])
            number //= unit if one[0] in "NF" else 1
            found += [number & 0xFFFF, number >> 16] if one[0] == "F" else [number]
    return found


def read(words, shapes):
    """Run a program as network.c does; `shapes` has, for a step, how far its addresses are."""

    def advance(frame, wide):
        if not frame["left"]:
            frame["bits"], frame["left"] = words[frame["at"]], 16
            frame["at"] += 1
        moves, frame["bits"], frame["left"] = (
            frame["bits"] & 1,
            frame["bits"] >> 1,
            frame["left"] - 1,
        )
        if not moves:
            return 0
        step = words[frame["at"]]
        frame["at"] += 1 + wide
        return step | words[frame["at"] - 1] << 16 if wide else step

    def run(at, end, frames):
        while at < end:
            kind, number = words[at] & 3, words[at] >> 2
            at += 1
            if kind == 3:
                body, steps = at + 2, at + 2 + words[at]
                kept = [dict(frame) for frame in frames]
                for turn in range(number):
                    for frame, old in zip(frames, kept, strict=True):
                        frame.update(old)
                    run(body, steps, [{"at": steps, "bits": 0, "left": 0, "turn": turn}, *frames])
                at = steps + words[at + 1]
                continue
            key = (kind, number, words[at]) if kind == 1 else (kind, number)
            at += kind == 1
            found = []
            for wide in shapes[key]:
                value = words[at] | (words[at + 1] << 16 if wide else 0)
                at += 1 + wide
                value += sum(frame["turn"] * advance(frame, wide) for frame in frames)
                found.append(value & (0xFFFFFFFF if wide else 0xFFFF))
            done.append((key, tuple(found)))

    done = []
    run(0, len(words), [])
    return done


def assert_same_steps(steps, unit=1):
    short = looped(steps)
    keys = [(KINDS[one.key[0]], *one.key[1:]) for one in steps]
    shapes = dict(zip(keys, (one.far for one in steps), strict=True))
    words = words_of(short, unit)
    assert len(words) == size_of(short)
    want = [(key, one.at) for key, one in zip(keys, steps, strict=True)]
    assert read(words, shapes) == want
    return short


def grid(rows, columns, planes=1):
    """Steps of a tiling in three axes, with two buffers, whose inner sums stay in place."""
    found = []
    for k in range(planes * rows * columns):
        plane, row, column = k // rows // columns, k // columns % rows, k % columns
        outer = 100_000 * plane + 640 * row + 3 * column
        found.append(made("COPY", k % 2, 7, at=(k % 2 * 512, outer), far=(False, True)))
        found.append(made("WAIT", k % 2))
        found.append(made("TILE", 4, at=(k % 2 * 512, 60_000 - 17 * row), far=(False, False)))
    return found


def test_a_program_does_not_grow_with_its_tiles():
    sizes = [size_of(assert_same_steps(grid(4, n))) for n in (6, 60, 600)]
    assert sizes[0] == sizes[1] == sizes[2] < size_of(grid(4, 6)) / 2
    deep = assert_same_steps(grid(8, 20, planes=5))
    assert depth_of(deep) == 3 and size_of(deep) < 60


@pytest.mark.parametrize("seed", range(4))
def test_any_program_is_read_back(seed):
    rng = np.random.default_rng(seed)
    steps = []
    while len(steps) < 300:
        kinds = [("WAIT", 1), ("COPY", 2, 0), ("COPY", 2, 1), ("TILE", 0), ("TILE", 1)]
        body = [made(*kinds[k]) for k in rng.integers(0, 5, rng.integers(1, 9))]
        places = [rng.integers(0, 1 << 15, 2) for _ in body]
        moves = [rng.choice([0, 0, 4, -8], 2) for _ in body]
        for turn in range(rng.integers(1, 7)):
            for one, place, move in zip(body, places, moves, strict=True):
                at = (
                    []
                    if one.key[0] == "WAIT"
                    else [int(v) % (1 << 16) for v in place + turn * move]
                )
                far = (False, True)[: len(at)]
                steps.append(made(*one.key, at=at, far=far))
    assert_same_steps(steps)


@pytest.mark.parametrize("buffering", ["single", "auto"])
def test_plans_are_read_back(buffering):
    training = network()
    plan = tiled.plan(training, tiled.siracusa_l2(l1=1_500), buffering=buffering)
    executor = plan.trainer(training)._executor
    graphs = (training.train, training.optimiser)
    ready = [list(executor._tiles(p, g)) for p, g in zip(plan.programs, graphs, strict=True)]
    tables = Tables(plan, ready)
    for again in (False, True):
        tokens, _ = tokens_of(plan.programs, again)
        for program, own, small in zip(plan.programs, ready, tokens, strict=True):
            assert_same_steps(tables.steps(program, own, small), tables.unit)


def test_loops_have_the_bits_and_cycles_of_the_plan(tmp_path):
    training, batches = network(), mini_batches(2)
    plan = tiled.plan(training, tiled.siracusa_l2(l1=1_500), buffering="double")
    plan.generate_c(tmp_path, training, batches)
    assert "LOOP(" in (tmp_path / "training_network.c").read_text()
    assert "LOOP_DEPTH 0" not in (tmp_path / "sizes.h").read_text()
    build(tmp_path, "-O1")
    assert_bits_and_cycles(tmp_path, plan, 2, 2)
