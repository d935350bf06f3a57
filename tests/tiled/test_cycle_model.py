"""The cycle model, to the cycle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpukit.errors import ParameterError
from rpukit.tiled import Compute, Hierarchy, Level
from rpukit.tiled.planner.cycle_model import (
    Event,
    TileCycles,
    double_buffered,
    lower_bound,
    single_buffered,
)
from tests.reference.planner import cases


def link(params: dict, **more) -> Level:
    return Level("L1", 1, **{key: params[key] for key in ("width", "setup", "row")}, **more)


@pytest.mark.parametrize("number", range(0, 80, 8))
def test_pipelines_take_the_recorded_cycles(number):
    for case in cases("timing/pipeline_cases")[number : number + 8]:
        level = link(case["params"])
        tiles = [
            TileCycles(
                sum(level.cycles(*transfer) for transfer in tile["in"]),
                tile["compute"],
                sum(level.cycles(*transfer) for transfer in tile["out"]),
            )
            for tile in case["tiles"]
        ]
        assert single_buffered(tiles) == case["sb"]
        for engine in ("fifo", "duplex"):
            for in_place in (False, True):
                trace: list[Event] = []
                cycles = double_buffered(
                    tiles, duplex=engine == "duplex", in_place=in_place, trace=trace
                )
                assert cycles == case[f"db_{engine}" + "_inplace" * in_place]
                expected = case.get(f"db_{engine}_trace")
                assert in_place or not expected or [list(e) for e in trace] == expected


@given(st.lists(st.tuples(*[st.integers(0, 999)] * 3).map(lambda t: TileCycles(*t)), max_size=9))
def test_bounds_hold(tiles):
    fifo, duplex = (double_buffered(tiles, duplex=d) for d in (False, True))
    assert lower_bound(tiles) <= duplex <= fifo <= single_buffered(tiles)
    assert lower_bound(tiles, duplex=False) <= fifo
    assert duplex <= double_buffered(tiles, in_place=True)
    if len(tiles) < 2:
        assert fifo == single_buffered(tiles)


def test_levels_refuse_what_makes_no_sense():
    for bad in ({"bytes": 0}, {"width": 0}, {"setup": -1}, {"row": 1.5}, {"align": 0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            Level(**{"name": "L1", "bytes": 8, **bad})
    with pytest.raises(ParameterError, match="macs"):
        Compute(macs=0)
    with pytest.raises(ParameterError, match="two or more"):
        Hierarchy([Level("L1", 8)])
    with pytest.raises(ParameterError, match="L7"):
        Hierarchy([Level("L2", 8), Level("L1", 8)]).index("L7")
