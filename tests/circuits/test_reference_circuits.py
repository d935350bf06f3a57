"""Likelihoods, flows and EM steps agree with an independent float64 reference."""

import numpy as np
import pytest

import rpukit as rk
from tests.reference import circuits as reference

# float64: rounding of sums of some hundred terms. float32: as the data's notes suggest.
TOLERANCES = {
    "float64": {"ll": 1e-10, "flow": 1e-10, "em": 1e-10},
    "float32": {"ll": 1e-5, "flow": 1e-5, "em": 1e-6},
}


@pytest.fixture(params=reference.NAMES)
def name(request):
    return request.param


@pytest.fixture(params=list(TOLERANCES))
def dtype(request):
    return request.param


def near(got, want, tolerance):
    got = np.asarray(got, np.float64).reshape(want.shape)
    with np.errstate(invalid="ignore"):
        off = np.where(got == want, 0, np.abs(got - want))
    assert off.max() <= tolerance, off.max()


def test_enough_circuits():
    assert len(reference.NAMES) >= 13


def test_likelihood(name, dtype):
    root, _, _ = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype=dtype)
    scale = max(1, np.abs(data["ll"][np.isfinite(data["ll"])]).max() / 10)
    bar = TOLERANCES[dtype]["ll"] * scale
    near(pc.log_likelihood(data["data"]), data["ll"], bar)
    near(pc.log_likelihood(data["data"], missing=data["missing"]), data["ll_missing"], bar)


def test_flows(name, dtype):
    root, nodes, spec = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype=dtype)
    for key, missing in (("node_flow", None), ("node_flow_missing", data["missing"])):
        flows = pc.flows(data["data"], missing=missing)
        for node in spec:
            if node["kind"] in reference.INNER:
                want = data[f"{key}_{node['id']}"]
                near(flows[nodes[node["id"]]], want, TOLERANCES[dtype]["flow"])


def test_parameter_flows(name, dtype):
    root, nodes, spec = reference.build(name)
    data, pc = reference.arrays(name), rk.Circuit(root, dtype=dtype)
    n = len(data["data"])
    for key, missing in (("pflow", None), ("pflow_missing", data["missing"])):
        pc = rk.Circuit(root, dtype=dtype)
        pc.accumulate(data["data"], missing=missing)
        for node in spec:
            if node["kind"] == "sum" and node.get("tied_to") is None:
                got = pc.parameter_flows(nodes[node["id"]])
                near(got, data[f"{key}_{node['id']}"], TOLERANCES[dtype]["flow"] * n)


@pytest.mark.parametrize("kind", ["param", "missing_param", "keepzero_param"])
def test_em_step(name, dtype, kind):
    root, nodes, spec = reference.build(name)
    data = reference.arrays(name)
    missing = data["missing"] if kind == "missing_param" else None
    for k, (step, pseudocount) in enumerate(data["em_settings"]):
        pc = rk.Circuit(root, dtype=dtype)
        pc.em_step(
            data["data"],
            missing=missing,
            step=step,
            pseudocount=pseudocount,
            keep_zeros=kind == "keepzero_param",
        )
        for node in spec:
            want = data.get(f"em{k}_{kind}_{node['id']}")
            if (
                node["kind"] in reference.INNER
                and node.get("tied_to") is None
                and want is not None
            ):
                bar = TOLERANCES[dtype]["em"]
                if isinstance(getattr(nodes[node["id"]], "leaf", None), rk.circuits.Gaussian):
                    bar = max(bar, 1e-9)  # the reference adds 1e-10 to the counts of these
                near(pc.parameters(nodes[node["id"]]), want, bar)


def test_hmm_against_forward_backward():
    data = reference.arrays("hmm_k3_v4_t12")
    roots = rk.circuits.hmm(12, 3, 4, start=data["pi"], transition=data["A"], emission=data["B"])
    pc = rk.Circuit(roots, dtype="float64")
    near(pc.log_likelihood(data["X"]), data["ll"], 1e-10)
    near(pc.log_likelihood(data["X"], missing=data["missing"]), data["ll_missing"], 1e-10)
    for want in data["bw_ll"]:  # Baum-Welch, step by step
        assert abs(pc.em_step(data["X"]).sum() - want) < 1e-9


def test_gaussian_hmm_posteriors():
    data = reference.arrays("hmm_gauss_k3")
    leaf = rk.circuits.Gaussian()
    emission = np.stack([data["mu"], np.sqrt(data["var"])], axis=1)
    root = rk.circuits.hmm(
        40, 3, leaf=leaf, start=data["pi"], transition=data["A"], emission=emission
    )
    pc = rk.Circuit(root, dtype="float64")
    near(pc.log_likelihood(data["X"]), data["ll"], 1e-9)
    flows = pc.flows(data["X"])
    leaves = {n.var: n for n in flows if isinstance(n, rk.circuits.InputNodes)}
    gamma = np.stack([flows[leaves[t]] for t in range(40)], axis=1)
    near(gamma, data["gamma"], 1e-9)


@pytest.mark.parametrize("name", ["struct_hclt_8v", "struct_hclt_12v"])
def test_hidden_chow_liu_tree(name):
    data = reference.arrays(name)
    soft = {"n_bins": int(data["num_bins"]), "sigma": float(data["sigma"])}
    information = rk.circuits.mutual_information(data["x"], **soft)
    pairs = ~np.eye(len(information), dtype=bool)
    near(information[pairs], data["mi"][pairs].astype(float), 1e-6)  # theirs is float32
    near(rk.circuits.mutual_information(data["x"]), data["mi_plugin"], 1e-12)
    parents, root = rk.circuits.chow_liu_tree(data["mi"])
    edges = {tuple(sorted((v, int(p)))) for v, p in enumerate(parents) if p >= 0}
    assert edges == {tuple(sorted(map(int, edge))) for edge in data["edges"]}
    assert root == data["root"]
