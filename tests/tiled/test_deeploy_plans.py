"""Beside the plans of Deeploy: the same buffers by its rules, fewer cycles and bytes by ours."""

import pytest

from rpukit import tiled
from rpukit.tiled.planner.buffering import OPTED_OUT, deeploy_buffers
from tests.reference import deeploy_plans
from tests.reference.models import folder, load

PLANS = sorted(folder().glob("plans/*.json.gz"))
pytestmark = pytest.mark.skipif(
    not PLANS, reason="needs the full set of reference data (RPUKIT_ORACLE)"
)
# The strategies that their names stand for: rule on scalars, ops that are opted out
RULES = {
    "db_final": OPTED_OUT,
    "db_rule": (),
    "db_l3": OPTED_OUT,
}


@pytest.mark.parametrize("rule", RULES)
def test_buffers_are_those_of_its_rules(rule):
    n = 0
    for path in PLANS:
        if not path.name.endswith(f"_{rule}.json.gz"):
            continue
        plan = deeploy_plans.read(path)
        if plan["summary"]["status"] != "ok":
            continue
        for op in plan["ops"]:
            if not op["tiles"]:
                continue
            tensors = [tensor for tensor in op["tensors"] if tensor["shape"] is not None]
            shapes = [tensor["shape"] for tensor in tensors]
            for hop in op["tiles"]:
                outer = not (rule == "db_l3" and hop == "L1")
                want, reason = deeploy_buffers(
                    op["op"], shapes, outer=outer, opted_out=RULES[rule]
                )
                assert (want == 1) == bool(reason)
                for tensor in tensors:
                    if hop in tensor["levels"]:
                        assert tensor["levels"][hop]["buffers"] == want, (path.name, op["name"])
                        n += 1
    assert n > 50


MODELS = {
    "simplemlp": ("SimpleMLP", "L2", 64_000),
    "autoencoder": ("Autoencoder", "L2", 128_000),
    "dscnn": ("DSCNN", "L2", 128_000),
    "resnet8": ("ResNet8", "L3", 128_000),
}
"""The graph of its plans of CCT is another one than that of the file; MobileNetV1 has none."""


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODELS)
def test_fewer_cycles_and_bytes(name):
    model, home, l1 = MODELS[name]
    levels = (tiled.siracusa_l2 if home == "L2" else tiled.siracusa_l3)(l1=l1)
    reference = load(f"fixtures/{model}")
    graph = tiled.training_from_onnx(reference.file("train"), reference.file("optimizer"))
    program = tiled.plan(graph, levels).programs[0]
    theirs = {}
    for kind in ("sb", "db_final", "db_l3"):
        path = folder() / "plans" / f"{name}_train_train_{home}_{l1}_{kind}.json.gz"
        plan = deeploy_plans.read(path) if path.exists() else None
        if plan and plan["summary"]["status"] == "ok":
            theirs[kind] = deeploy_plans.total(plan, levels)
    assert len(theirs) == 2
    assert program.cycles < 0.75 * min(theirs.values()), (program.cycles, theirs)
    others = [tiled.plan(graph, levels, buffering=b) for b in ("single", "double")]
    for op, *rest in zip(program.ops, *(p.programs[0].ops for p in others), strict=True):
        assert op.alone <= min(other.alone for other in rest)
    if home == "L3":  # four steps moved 49.3 MB in and 59.0 MB out
        assert sum(program.moved["L2"]) <= 0.5 * (49_271_692 + 58_959_152) / 4
