"""Sweeps: results by point and seed, whoever computes them; records are taken up again."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rpukit as rk
from rpukit.distributed import Run, seed_of, sweep
from rpukit.errors import FormatError, ParameterError

POINTS = [{"noise": s, "n": n} for s in (0.0, 0.5) for n in (2, 3)]


def study(noise, n, seed):
    """Numbers that depend on all arguments, and on the seed."""
    draws = np.random.default_rng(seed).normal(size=n)
    return {"draws": noise * draws, "mean": np.float32(draws.mean()), "n": np.int64(n)}


def results(runs):
    return [(run.point, run.seed, run.result) for run in runs]


def test_results_do_not_depend_on_workers_or_order():
    here = sweep(study, POINTS, seeds=2)
    assert [(run.point, run.seed) for run in here] == [(p, k) for p in POINTS for k in (0, 1)]
    assert here[4].result["draws"] != here[5].result["draws"]
    with ThreadPoolExecutor(3) as pool:
        assert results(sweep(study, POINTS, seeds=2, client=pool)) == results(here)
    backwards = sweep(study, POINTS[::-1], seeds=[1, 0])
    assert sorted(map(str, results(backwards))) == sorted(map(str, results(here)))
    assert len(sweep(study, POINTS[:1])) == 1


def test_a_record_is_taken_up_again(tmp_path):
    """After a stop in the middle of a line."""
    path, calls = tmp_path / "runs.jsonl", []

    def counted(noise, n, seed):
        calls.append((noise, n))
        return study(noise, n, seed)

    whole = sweep(counted, POINTS, record=path)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    calls.clear()
    assert results(sweep(counted, POINTS, record=path)) == results(whole)
    assert calls == [(0.5, 2), (0.5, 3)]
    calls.clear()
    again = sweep(counted, [*POINTS, {"noise": 1, "n": 1}], record=path)
    assert results(again[:4]) == results(whole)
    assert calls == [(1, 1)]
    path.write_bytes(lines[0][:7])  # stopped while the first line was written
    assert results(sweep(counted, POINTS, record=path)) == results(whole)


def test_a_call_that_fails_does_not_lose_the_others(tmp_path):
    path = tmp_path / "runs.jsonl"

    def fails(noise, n, seed):
        if n == 2:
            raise ZeroDivisionError("n is 2")
        return n

    with pytest.raises(ZeroDivisionError) as found:
        sweep(fails, POINTS, record=path)
    assert found.value.__notes__ == ["at point {'noise': 0.0, 'n': 2}, seed 0"]
    held = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [line["result"] for line in held] == [3, 3]


def test_records_of_others_are_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    sweep(study, POINTS[:1], record=path)
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="holds runs of .*study, got .*seed_of"):
        sweep(seed_of, POINTS, record=path)
    assert path.read_bytes() == before
    path.write_text('{"format": "something"}\n')
    with pytest.raises(FormatError, match="no record"):
        sweep(study, POINTS, record=path)


@pytest.mark.parametrize(
    ("points", "options", "match"),
    [
        ([{"a": object()}], {}, "got object"),
        ([{"seed": 1}], {}, "without"),
        ([3], {}, "need mappings"),
        ([{"a": 1}, {"a": 1}], {}, "comes twice"),
        ([{"a": 1}], {"seeds": 0}, "one or more"),
        ([{"a": 1}], {"client": 3}, "client: got 3"),
    ],
)
def test_what_cannot_be_swept(points, options, match):
    with pytest.raises(ParameterError, match=match):
        sweep(study, points, **options)


def test_results_are_what_json_holds():
    assert sweep(lambda a, seed: (1, None, True, "x", 0.1 + 0.2), [{"a": 1}])[0].result == [
        1, None, True, "x", 0.1 + 0.2,
    ]  # fmt: skip
    with pytest.raises(ParameterError, match="result: got set"):
        sweep(lambda a, seed: {1}, [{"a": 1}])


def test_seeds_are_fixed():
    """They are part of what users publish."""
    assert seed_of({"b": 1, "a": 0.5}, 3) == seed_of({"a": 0.5, "b": 1}, 3)
    assert seed_of({"a": np.float64(0.5)}, 3) == seed_of({"a": 0.5}, 3)
    assert seed_of({"noise": 0.1}, 0) == SEED
    assert isinstance(sweep(study, POINTS[:1])[0], Run)
    assert rk.distributed.sweep is sweep


SEED = 804283337133288318
