"""Every public call of rpukit, with arguments that work: what `fuzz_arguments.py` changes.

Calls are found by introspection. An argument without a default has an example here, found by the
path of the call and its name, by the class and its name, or by its name alone.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import rpukit as rk

_MODULES = """
rk rk.analog rk.analog.presets rk.circuits rk.inference rk.tiled rk.studies rk.plot
rk.tiled.methods rk.estimators rk.elementwise rk.gemm rk.random rk.summaries rk.tuning
"""
MODULES = tuple(_MODULES.split())

# Files, compiling, what changes the whole process, and what users do not call.
_LEFT_OUT = """
rk.load rk.save rk.warm_up rk.register_step rk.set_num_threads rk.tiled.read_csv
rk.tiled.write_csv rk.tiled.generate_c rk.tiled.from_onnx rk.tiled.training_from_onnx
rk.random.philox4x32 rk.summaries.Described rk.summaries.Fact rk.tiled.Block rk.tiled.Candidate
rk.inference.Curve rk.tuning.fix rk.tuning.forget rk.tuning.off rk.tuning.on rk.tuning.Entry
rk.tuning.Report rk.tiled.GpuExecutor rk.analog.Cell rk.circuits.Nodes rk.circuits.InputNodes
rk.circuits.SumNodes rk.circuits.ProductNodes rk.circuits.Leaf rk.inference.NoiseModel
rk.inference.Converter rk.inference.Programmed rk.inference.WriteVerify
rk.studies.PulseResponse rk.studies.StepStatistics rk.studies.PulseData rk.studies.DeviceFit
rk.studies.Endurance rk.studies.Retention rk.studies.Overlay rk.studies.Ranked
rk.studies.Estimate rk.studies.load_fit rk.studies.read_pulses rk.Summary rk.summaries.Histogram
rk.tiled.Graph rk.tiled.Node rk.tiled.Tensor rk.tiled.Operand rk.tiled.Training
rk.tiled.TileSpace rk.tiled.Plan rk.tiled.Axis rk.tiled.CpuExecutor rk.tiled.simulate
rk.tiled.find_hazards rk.tiled.live_bytes rk.tiled.make_graph rk.PulsedCell rk.UpdatePolicy
rk.analog.register_step rk.summaries.Summary rk.circuits.Partials rk.circuits.register_leaf
rk.circuits.FunctionLeaf rk.tiled.LevelSweep rk.tiled.TargetComparison rk.tiled.write_trace
rk.plot.plot_ageing rk.plot.plot_targets rk.tiled.methods.Rotation
rk.tiled.methods.freeze rk.tiled.calibrate
"""
LEFT_OUT = set(_LEFT_OUT.split())
_METHODS_LEFT_OUT = """
drawn range_of planes shares tables inverse from_state save load generate_c to_json from_json
run measure get_metadata_routing set_partial_fit_request set_score_request write_back captured
from_onnx walk checked has_home home array index duplicate
"""
METHODS_LEFT_OUT = set(_METHODS_LEFT_OUT.split())
_TILES = """
ideal soft noisy wide drawn turned inference programmed ranged transfer buffered chopped
dynamic mixed one_sided vector
"""
TILES = tuple(_TILES.split())
STEPS = ("em_step", "scaled_em_step", "gradient_step")
MORE_METHODS = ("__dlpack__", "__array__", "__matmul__", "__rmatmul__")

_SLOW = "diffusion=.01, lifetime=10., reset_std=.1, drift=rk.DriftParameters(nu=.1)"
_TWO = "devices=(rk.SoftBounds(), rk.SoftBounds())"
_TILE = "rk.AnalogTile((2, 3), {}, seed=1)"
OBJECTS = {
    "ideal": _TILE.format(f"rk.Ideal({_SLOW})"),
    "soft": _TILE.format(f"rk.SoftBounds(dw_min=.01, {_SLOW})"),
    "noisy": _TILE.format("rk.LinearStep(dw_min=.01, write_noise_std=.1)"),
    "wide": "rk.AnalogTile((2, 3), rk.ExpStep(), seed=1, dtype='float64', count_pulses=True)",
    "drawn": "rk.AnalogTile((2, 3), rk.PowStep(), seed=1, storage='procedural')",
    "transfer": _TILE.format("rk.Transfer()"),
    "buffered": _TILE.format("rk.BufferedTransfer()"),
    "chopped": _TILE.format("rk.ChoppedTransfer()"),
    "dynamic": _TILE.format("rk.DynamicTransfer()"),
    "mixed": _TILE.format("rk.MixedPrecision()"),
    "one_sided": _TILE.format("rk.OneSided()"),
    "vector": _TILE.format(f"rk.Vector({_TWO})"),
    "turned": _TILE.format("rk.SoftBounds()") + ".T",
    "inference": "rk.InferenceTile((2, 3), seed=1).set_weights(W)",
    "programmed": "rk.InferenceTile((2, 3), seed=1).set_weights(W).program()",
    "ranged": "rk.InferenceTile((2, 3), input_range=rk.inference.InputRange()).set_weights(W)",
    "mapped": "rk.inference.map_matrix((2, 3), max_tile=(2, 2)).set_weights(W)",
    "hmm": "rk.Circuit(rk.circuits.hmm(4, 2, 3), seed=1)",
    "normal": "rk.Circuit(rk.circuits.mixture(4, 2, rk.circuits.Gaussian()), seed=1)",
    "fixed": "rk.Circuit(rk.circuits.mixture(4, 2, rk.circuits.Poisson()), dtype='float64')",
    "trainer": "PLAN.trainer(TRAINING)",
    "plan": "PLAN",
    "builder": "BUILDER()",
    "density": "rk.estimators.CircuitDensity(n_epochs=1).fit(XI)",
    "trees": "rk.estimators.ChowLiuMixture(2, n_epochs=1).fit(XI)",
    "classes": "rk.estimators.CircuitClassifier(n_epochs=1).fit(XI, Y)",
    "classifier": "rk.estimators.AnalogClassifier((2,), epochs=1).fit(X, Y)",
    "regressor": "rk.estimators.AnalogRegressor((2,), epochs=1).fit(X, X[:, 0])",
    "gradient": "rk.gemm.WeightGradient((3, 2), np.float16)",
    "stream": "rk.Stream.from_seed(1)",
    "gaussian": "rk.circuits.Gaussian()",
    "cell": "rk.SoftBounds()",
    "periphery": "rk.IOParameters()",
    "pulses": "rk.UpdateParameters()",
    "pcm": "rk.inference.PCMLike()",
    "pair": "rk.inference.SinglePair()",
    "weights": "rk.circuits.hmm(4, 2, 3)",
    "levels": "rk.tiled.siracusa_l2()",
    "setting": "rk.analog.presets.config('GokmenVlasov')",
}

EXAMPLES = {
    "shape": "(2, 3)",
    "cell": "rk.SoftBounds()",
    "x": "X",
    "d": "D",
    "b": "X.T",
    "lr": "0.1",
    "a": "X",
    "device": "'cpu'",
    "weight": "W",
    "v": "X[0]",
    "t": "100.0",
    "grad": "X",
    "name": "'softmax'",
    "seed": "1",
    "missing": "M",
    "n_nodes": "2",
    "leaf": "rk.circuits.Categorical(n_values=3)",
    "leaves": "rk.circuits.Categorical(n_values=3)",
    "fast": "rk.SoftBounds()",
    "slow": "rk.SoftBounds()",
    "cells": "(rk.SoftBounds(), rk.SoftBounds())",
    "stream": "rk.Stream(1, 2)",
    "tile": "rk.AnalogTile((2, 3), rk.SoftBounds())",
    "circuit": "rk.circuits.hmm(4, 2, 3)",
    "n_variables": "4",
    "response": "RESPONSE",
    "plan": "PLAN",
    "graph": "TRAINING",
    "training": "TRAINING",
    "levels": "rk.tiled.siracusa_l2()",
    "batch": "BATCH",
    "y": "X",
}


@dataclass(frozen=True)
class Call:
    """One public callable: what makes its object, how it is called, and its arguments."""

    make: str
    path: str
    signature: inspect.Signature
    examples: dict[str, str]

    @property
    def where(self) -> str:
        """Name for reports."""
        return self.path


def example(path: str, owner: str, name: str) -> str | None:
    """Return the example of an argument: of the call, of the class, or of all calls."""
    for key in (f"{path}.{name}", f"{owner}.{name}", name):
        if key in OWN:
            return OWN[key]
    return EXAMPLES.get(name)


OWN = {
    **dict.fromkeys((f"{name}.matmat.x" for name in TILES), "X.T"),
    **dict.fromkeys((f"{name}.rmatmat.d" for name in TILES), "D.T"),
    **dict.fromkeys((f"{name}.matvec.x" for name in TILES), "X[0]"),
    **dict.fromkeys((f"{name}.rmatvec.d" for name in TILES), "D[0]"),
    "turned.b": "D.T",
    "turned.matmat.x": "D.T",
    "turned.rmatmat.d": "X.T",
    "turned.matvec.x": "D[0]",
    "turned.rmatvec.d": "X[0]",
    "ideal.set_cells.**arrays": "diffusion_rate=0.1 * abs(W)",
    **dict.fromkeys((f"{c}.{n}.x" for c in ("hmm", "fixed") for n in STEPS), "XI"),
    **dict.fromkeys((f"normal.{n}.x" for n in STEPS), "XN"),
    **dict.fromkeys((f"{c}.sample.n_sample" for c in ("hmm", "normal", "fixed")), "3"),
    "rk.circuits.prune.circuit": "COUNTED",
    "rk.ShardedLinear.weights": "[W[:1], W[1:]]",
    "rk.ShardedTile.devices": "('cpu', 'cpu')",
    "rk.ShardedInferenceTile.devices": "('cpu', 'cpu')",
    **dict.fromkeys(("hmm.absorb.partials", "fixed.absorb.partials"), "OBJ.partials(XI)"),
    "normal.absorb.partials": "OBJ.partials(XN)",
    "rk.elementwise.softmax_cross_entropy.labels": "Y.astype('i4')",
    "rk.gemm.WeightGradient.dtype": "np.float16",
    "gradient.a": "X.astype('f2')",
    "gradient.dc": "D.astype('f2')",
    "builder.apply.op": "'Relu'",
    "builder.apply.name": "'y'",
    **dict.fromkeys(("hmm.x", "fixed.x", "density.X", "trees.X", "classes.X"), "XI"),
    **dict.fromkeys(("classifier.X", "regressor.X", "estimators.X"), "X"),
    **dict.fromkeys(("classifier.y", "classes.y"), "Y"),
    "density.y": "None",
    "trees.y": "None",
    "regressor.y": "X[:, 0]",
    "normal.x": "XN",
    "hmm.other": "OBJ",
    "fixed.other": "OBJ",
    "normal.other": "OBJ",
    "hmm.nodes": "ROOT(OBJ)",
    "fixed.nodes": "ROOT(OBJ)",
    "normal.nodes": "ROOT(OBJ)",
    "hmm.parameters": "OBJ.parameters(ROOT(OBJ))",
    "fixed.parameters": "OBJ.parameters(ROOT(OBJ))",
    "normal.parameters": "OBJ.parameters(ROOT(OBJ))",
    "weights.parameters": "[[0.5, 0.5]]",
    "weights.perturbation": "0.5",
    "variables": "[0, 2]",
    "regressor.scores": "X",
    "n_sample": "3",
    "trainer.progress": "None",
    "batches": "[BATCH]",
    "trainer.training": "TRAINING",
    "plan.training": "TRAINING",
    "plan.folder": "'never'",
    "builder.name": "'v'",
    "builder.x": "'x'",
    "builder.value": "W",
    "builder.*inputs": "",
    "builder.graph.*outputs": "'x'",
    "builder.loss": "'loss'",
    "builder.tile": "rk.AnalogTile((2, 8), rk.SoftBounds(), seed=1)",
    "stream.index": "3",
    "stream.seed": "1",
    "cell.shape": "(2, 3)",
    "periphery.dtype": "np.dtype('f4')",
    "pulses.granularity": "0.001",
    "gaussian.parameters": "[[0.0, 1.0]]",
    "gaussian.n_node": "1",
    "gaussian.uniform": "np.full((2, 2), 0.5, 'f4')",
    "gaussian.perturbation": "0.5",
    "pcm.target": "25 * abs(W)",
    "pcm.programmed": "OBJ.program(25 * abs(W))",
    "pcm.g_max": "20.0",
    "pair.conductance": "OBJ.to_conductance(W)[0]",
    "pair.split": "OBJ.to_conductance(W)[1]",
    "pair.w_max": "1.0",
    "pair.scale": "1.0",
    "pair.lowest": "-1.0",
    "levels.name": "'L2'",
    "scales": "np.ones(2, 'f4')",
    "inference.y": "D",
    "ranged.y": "D",
    "programmed.y": "D",
    "energy_per_pulse": "1e-15",
    "*children": "rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2)",
    "rk.circuits.product.*children": "rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2)",
    "*vectors": "rk.circuits.hmm(4, 2, 3)",
    "**arrays": "w_max=0.5 * abs(W)",
    "roots": "rk.circuits.hmm(4, 2, 3)",
    "rk.circuits.pd.shape": "(2, 2)",
    "rk.circuits.pd_hclt.shape": "(2, 2)",
    "rk.circuits.hmm.seq_len": "4",
    "rk.circuits.hmm.n_states": "2",
    "rk.circuits.hmm.n_symbols": "3",
    "n_components": "2",
    "var": "0",
    "information": "abs(np.corrcoef(XI.T))",
    "block_size": "1",
    "partitions": "{(0, 1): [[(0,), (1,)]]}",
    "n_values": "3",
    "rk.circuits.MaskedCategorical.allowed": "(0, 1)",
    "n_trials": "3",
    "rk.circuits.Rule.exponent": "1.0",
    **dict.fromkeys(("rk.circuits.hclt.x", "rk.circuits.pd_hclt.x"), "XI"),
    "rk.circuits.mutual_information.x": "XI",
    **dict.fromkeys(("rk.circuits.chow_liu.x", "rk.circuits.chow_liu_mixture.x"), "XI"),
    **dict.fromkeys(("rk.circuits.learn_spn.x", "rk.circuits.distil.x"), "XI"),
    "rk.circuits.distil.root": "rk.circuits.hclt(XI, 2)",
    "n_successes": "2.0",
    "rk.circuits.prune.keep": "0.5",
    "target": "W",
    "programmed": "W",
    "rk.inference.fit_model.target": "np.linspace(1, 20, 50)",
    "rk.inference.fit_model.programmed": "np.linspace(1, 20, 50)",
    "times": "np.array([20.0, 100.0, 1000.0])",
    "traces": "np.array([[1], [0.9], [0.8]]) * np.linspace(1, 20, 50)",
    "rk.inference.fit_model.g_max": "25.0",
    "coefficients": "(0.1, 0.2)",
    "rk.inference.PowerLaw.a": "1.0",
    "rk.inference.PowerLaw.b": "-0.1",
    "rk.inference.ClippedLog.a": "1.0",
    "rk.inference.ClippedLog.b": "-0.1",
    "low": "0.0",
    "high": "1.0",
    "rk.inference.Table.x": "(0.0, 1.0)",
    "rk.inference.Table.y": "(0.0, 1.0)",
    "inference.set_range.value": "1.0",
    "programmed.set_range.value": "1.0",
    "ranged.set_range.value": "1.0",
    "mapped.set_range.value": "1.0",
    "mapped.grad": "X",
    "rk.inference.MappedMatrix.tiles": "[[rk.InferenceTile((2, 3))]]",
    "rk.inference.write_verify.tile": "rk.AnalogTile((2, 3), rk.SoftBounds())",
    "rk.inference.write_verify.max_rounds": "5",
    "rk.tiled.Level.name": "'L1'",
    "rk.tiled.Rate.op": "'Relu'",
    "rk.tiled.Rate.launch": "5",
    "rk.tiled.Rate.rows": "(8, 16)",
    "rk.tiled.Rate.cycles": "(4, 9)",
    "rk.tiled.Calibration.device": "'cpu'",
    "rk.tiled.Calibration.link": "rk.tiled.Level('cache', 1)",
    "rk.tiled.Calibration.compute": "rk.tiled.Compute()",
    "bytes": "65536",
    "rk.tiled.Hierarchy.levels": "rk.tiled.siracusa_l2().levels",
    "rk.tiled.Builder.name": "'net'",
    "budget": "65536",
    "candidates": "[rk.tiled.Candidate('a', 0, 1, 16, 3), rk.tiled.Candidate('b', 1, 2, 16, 3)]",
    "blocks": "[rk.tiled.Block('a', 0, 2, 16), rk.tiled.Block('b', 1, 3, 16)]",
    "plans": "{'net': {'ours': PLAN}}",
    "pulses": "[1, 1, -1, 1]",
    "tiles": "{'a': rk.AnalogTile((2, 3), rk.SoftBounds())}",
    "rk.plot.plot_devices.cells": "{'a': rk.SoftBounds()}",
    "rk.plot.plot_devices.n_pulse": "20",
    "n_layers": "1",
    "rk.tiled.methods.add_lora.builder": "BUILDER()",
    "rk.tiled.methods.quantise.builder": "BUILDER()",
    "rk.tiled.methods.add_lora.*patterns": "'w'",
    "rank": "2",
    "rk.tiled.methods.train_rows.rows": "{'w': (0, 1)}",
    "sweep": "rk.tiled.LevelSweep('L1', (1000, 2000), {'auto': (9, 5)}, 1000)",
    "rk.studies.ConductanceMap.g_zero": "30.0",
    "rk.studies.ConductanceMap.g_per_weight": "20.0",
    "rk.studies.example_pulses.name": "'reram'",
    "rk.studies.fit_device.data": "DATA",
    "rk.studies.endurance.response": "CYCLES",
    "rk.studies.count_states.response": "CYCLES",
    "rk.studies.retention.cell": "rk.SoftBounds(lifetime=9.0)",
    "rk.studies.retention.times": "[1.0, 4.0]",
    "fit": "FIT",
    "rk.plot.plot_fit.data": "DATA",
    "rk.plot.plot_residuals.data": "DATA",
    "kept": "rk.studies.Retention(np.ones(1), np.zeros(2), np.zeros((1, 2, 3)))",
    "worn": "rk.studies.endurance(CYCLES)",
    "rk.studies.symmetric_point.n_cell": "3",
    "rk.studies.symmetric_point.n_pulse": "20",
    "curves": "{'a': [1.0, 2.0]}",
    "rk.plot.plot_structure.circuit": "rk.Circuit(rk.circuits.hmm(4, 2, 3))",
    "logits": "X",
    "rk.elementwise.math_map.name": "'exp'",
    "dc": "X @ np.ones((3, 3), 'f4')",
    "rk.det_gemm.b": "np.ones((3, 3), 'f4')",
    "rk.det_gemm_backward.b": "np.ones((3, 3), 'f4')",
    "hidden": "X",
    "rk.linear_logprob.weight": "np.ones((4, 3), 'f4')",
    "rk.linear_logprob_backward.weight": "np.ones((4, 3), 'f4')",
    "targets": "Y",
    "dlogprob": "X[:, 0]",
    "dtype": "np.float32",
    "bits": "np.zeros(3, np.uint16)",
    "rk.gemm.WeightGradient.shape": "(3, 2)",
    "obj": "rk.AnalogTile((2, 3), rk.SoftBounds())",
    "values": "X",
    "key0": "1",
    "key1": "2",
    "rk.analog.presets.config.name": "'GokmenVlasov'",
    "rk.analog.presets.device.name": "'GokmenVlasov'",
    "classifier.sample_weight": "None",
}


def examples_of(path: str, owner: str, signature: inspect.Signature) -> dict[str, str]:
    """Find an example for every argument without a default, and for those that have one."""
    found = {}
    for name, parameter in signature.parameters.items():
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        key = star.get(parameter.kind, "") + name
        text = example(path, owner, key)
        needed = parameter.default is parameter.empty and key == name
        own = f"{path}.{key}" in OWN
        if text is None and needed:
            raise KeyError(f"{path}({key}): no example, add one to {__name__}.OWN")
        if text is not None and (needed or own or key != name):
            found[key] = text
    return found


def calls() -> Iterator[Call]:
    """List every public callable: functions and classes of the modules, methods of the objects."""
    seen: set[int] = set()
    for module in MODULES:
        space = eval(module, {"rk": rk})
        for name in getattr(space, "__all__", dir(space)):
            path, thing = f"{module}.{name}", getattr(space, name, None)
            public = not name.startswith("_") and callable(thing) and id(thing) not in seen
            kind = isinstance(thing, type) and issubclass(thing, enum.Enum)
            if not public or kind or path in LEFT_OUT or inspect.ismodule(thing):
                continue
            seen.add(id(thing))
            signature = inspect.signature(thing)
            owner = module.rpartition(".")[2]
            yield Call("", path, signature, examples_of(path, owner, signature))


def methods(names: dict[str, str], world: dict[str, Any]) -> Iterator[Call]:
    """List the public methods of the objects."""
    for owner, make in names.items():
        thing = eval(make, world)
        for name in [*(n for n in dir(thing) if not n.startswith("_")), *MORE_METHODS]:
            member = getattr(type(thing), name, None)
            if name in METHODS_LEFT_OUT or not callable(member) or isinstance(member, type):
                continue
            signature = inspect.signature(getattr(thing, name))
            path = f"{owner}.{name}"
            yield Call(make, path, signature, examples_of(path, owner, signature))


def used(thing: Any) -> list[str]:
    """List the programs that use an object of parameters, as lines over ``OBJ``."""
    inference, tiled = rk.inference, rk.tiled
    tile, on = "rk.AnalogTile((2, 3), {}, seed=1)", "rk.InferenceTile((2, 3), {}, seed=1)"
    learn = "TILE.set_weights(W).update(X, D, 0.1); TILE.forward(X); TILE.backward(D)"
    slow = "TILE.decay(); TILE.diffuse(); TILE.drift(); TILE.drift(9.); TILE.reset(prob=.5)"
    shown = "TILE.set_weights(W).program().drift_to(1e4).forward(X)"
    trained = "TILE.set_weights(W).update(X, D, .1).post_step().forward(X)"
    ranged = "TILE.learn_range(X, X, 1.)"
    mixed = "rk.Circuit(rk.circuits.mixture(4, 2, OBJ), seed=1)"
    uses: list[tuple[Any, str, list[str]]] = [
        (rk.analog.Cell, tile.format("OBJ"), [learn, slow]),
        (rk.DriftParameters, tile.format("rk.Ideal(drift=OBJ)"), [slow]),
        (rk.IOParameters, tile.format("rk.SoftBounds(), forward=OBJ, backward=OBJ"), [learn]),
        (rk.UpdateParameters, tile.format("rk.SoftBounds(), update=OBJ"), [learn]),
        (inference.NoiseModel, on.format("noise=OBJ"), [shown]),
        (inference.Converter, on.format("converter=OBJ"), [shown]),
        (inference.WeightModifier, on.format("modifier=OBJ"), [trained]),
        (inference.WeightClip, on.format("weight_clip=OBJ"), [trained]),
        (inference.WeightRemap, on.format("weight_remap=OBJ"), [trained]),
        (inference.InputRange, on.format("input_range=OBJ"), [trained, ranged]),
        (inference.Curve, "OBJ", ["TILE(np.linspace(0, 1, 5)), TILE.head(), TILE.nodes()"]),
        (rk.circuits.Leaf, mixed, ["TILE.em_step(XI)"]),
        (rk.circuits.Rule, OBJECTS["hmm"], ["TILE.log_likelihood(XI, rule=OBJ)"]),
        ((tiled.SGD, tiled.MomentumSGD, tiled.Adam), "PLAN_OF(OBJ)", ["TILE.step(BATCH)"]),
        (tiled.Hierarchy, "rk.tiled.plan(TRAINING, OBJ)", []),
        (tiled.Level, "rk.tiled.plan(TRAINING, LEVELS_OF(OBJ))", []),
        (tiled.Compute, "rk.tiled.plan(TRAINING, LEVELS_OF(OBJ))", []),
        (rk.circuits.graph.nodes.Nodes, "rk.Circuit(OBJ, seed=1)", []),
    ]  # fmt: skip
    for kind, make, lines in uses:
        if isinstance(thing, kind):
            return [f"TILE = {make}", *lines]
    return []
