"""Recorded circuits of the reference toolkit, built with the words of rpukit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rpukit import circuits
from tests import reference

INNER = ("sum", "input")


def folder() -> Path:
    """Where the files of this topic are."""
    return reference.folder("circuits")


NAMES = sorted(path.stem for path in folder().glob("*.json"))


def arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(folder() / f"{name}.npz") as file:
        return dict(file)


def _leaf(node: dict) -> circuits.Leaf:
    kind = node["dist"]
    if kind == "categorical":
        return circuits.Categorical(n_values=len(node["params"][0]))
    if kind == "bernoulli":
        return circuits.Bernoulli()
    if kind == "binomial":
        return circuits.Binomial(n_trials=node["n_trials"])
    if kind == "gaussian":
        return circuits.Gaussian(min_std=node.get("min_sigma", 0.01))
    if kind == "discrete_logistic":
        low, high = node["range"]
        std = node.get("min_sigma", 0.01)
        return circuits.DiscreteLogistic(
            n_values=node["num_cats"], low=low, high=high, min_std=std
        )
    assert kind in ("indicator", "literal"), kind
    return circuits.Indicator(n_values=node["num_cats"])


def build(name: str) -> tuple[circuits.Nodes, dict[int, circuits.Nodes], list[dict]]:
    """The root, all node vectors by their number in the file, and the file's nodes."""
    with open(folder() / f"{name}.json") as file:
        spec = json.load(file)
    by_id = {node["id"]: node for node in spec["nodes"]}
    made: dict[int, circuits.Nodes] = {}
    for node in spec["nodes"]:
        block, kind = node["block_size"], node["kind"]
        own = by_id[node["tied_to"]] if node.get("tied_to") is not None else node
        children = [made[k] for k in node.get("children", ())]
        if kind == "input":
            n, given = node["num_nodes"], own["params"]
            made[node["id"]] = circuits.inputs(
                node["var"], _leaf(own), n, block_size=block, parameters=given
            )
        elif kind == "product":
            made[node["id"]] = circuits.product(
                *children, node_edges=np.array(node["edges"]), block_size=block
            )
        else:
            made[node["id"]] = circuits.sum(
                *children,
                n_nodes=node["num_nodes"],
                edges=np.array(node["edge_ids"]),
                block_size=block,
                parameters=np.array(own["params"]),
            )
    for node in spec["nodes"]:
        if node.get("tied_to") is not None:  # the owner may come later in the file
            made[node["id"]].source = made[node["tied_to"]]
    return made[spec["root"]], made, spec["nodes"]
