"""What is unsafe about a schedule is found, by its name."""

from rpukit.tiled import find_hazards
from tests.reference.planner import cases


def test_recorded_schedules_get_the_recorded_findings():
    found = {
        case["name"]: find_hazards(case["buffers"], case["schedule"])
        for case in cases("schedules/race_cases")
    }
    assert found == {case["name"]: case["expect"] for case in cases("schedules/race_cases")}
    assert len(found) == 15


def test_moving_a_wait_past_its_reader_is_found():
    for case in cases("schedules/race_cases"):
        if case["expect"] != ["ok"]:
            continue
        schedule = list(case["schedule"])
        k = next(k for k, event in enumerate(schedule) if event["ev"] == "wait")
        reader = next(j for j in range(k, len(schedule)) if schedule[j]["ev"] == "compute")
        schedule.insert(reader, schedule.pop(k))
        assert "race" in find_hazards(case["buffers"], schedule), case["name"]
