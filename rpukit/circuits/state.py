"""The state of a circuit as JSON and plain arrays, for `rpukit.save`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.core import Core
from rpukit.circuits.graph import densities, leaves
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.momenta import Momenta
from rpukit.circuits.parameters import shift_moments
from rpukit.errors import FormatError, RpukitError
from rpukit.random import Stream

__all__ = ["FORMAT", "VERSION", "rebuild", "state_of", "structure_of", "take_state"]

Array = Any

FORMAT, VERSION = "rpukit.Circuit", 1
_MOMENTA = ("first", "leaf_first", "second", "leaf_second")
_ARRAYS = ("theta", "leaf_parameters", "chains", "totals", "leaf_chains", "leaf_totals")
_COUNTED = _ARRAYS[2:]


def _owned(core: Core) -> dict[str, Array]:
    """Map names in a file to the arrays of a circuit."""
    parameters, statistics = core.parameters, core.statistics
    arrays = (parameters.theta, parameters.rows.parameters, statistics.chains, statistics.totals)
    return dict(
        zip(_ARRAYS, (*arrays, statistics.leaf_chains, statistics.leaf_totals), strict=True)
    )


def described(layout: Layout) -> tuple[dict[str, Any], dict[str, Array]]:
    """Describe a graph: what JSON holds of it, and the arrays of its edges."""
    places = {nodes.number: k for k, nodes in enumerate(layout.nodes)}
    arrays: dict[str, Array] = {}
    made = []
    for k, nodes in enumerate(layout.nodes):
        about: dict[str, Any] = {
            "kind": nodes.KIND,
            "n_node": nodes.n_node,
            "block_size": nodes.block_size,
            "children": [places[child.number] for child in nodes.children],
        }
        if nodes.source is not nodes:
            about["source"] = places[nodes.source.number]
        if isinstance(nodes, InputNodes):
            about |= {"var": nodes.var, "leaf": type(nodes.leaf).__name__}
            about["leaf_parameters"] = asdict(nodes.leaf)
        elif isinstance(nodes, (ProductNodes, SumNodes)):
            arrays[f"edges_{k}"] = nodes.edges
        if isinstance(nodes, SumNodes) and nodes.zero_mask is not None:
            arrays[f"zero_mask_{k}"] = nodes.zero_mask
        made.append(about)
    return {"roots": [places[root.number] for root in layout.roots], "nodes": made}, arrays


def structure_of(core: Core) -> str:
    """Fingerprint of the graph and the arithmetic of a circuit; parameters do not count."""
    if core.structure is None:
        about, arrays = described(core.layout)
        digest = hashlib.sha256(json.dumps([about, *_arithmetic(core)]).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            digest.update(f"{name} {array.shape} {array.dtype}".encode())
            digest.update(array.data)
        core.structure = digest.hexdigest()[:32]
    return core.structure


def _arithmetic(core: Core) -> tuple[str, str]:
    """Type and precision of a circuit."""
    return core.dtype.name, "fp32" if core.parameters.rounded is None else "bf16"


def state_of(core: Core, *, compact: bool = False, momenta: bool = True) -> dict[str, Any]:
    """Collect the state of a circuit: ``header`` (JSON) and ``arrays``.

    ``compact``: statistics that hold no sample, which are all 0, are left out. Without
    ``momenta`` those are left out too.
    """
    core.need_no_gap("state")
    compact = compact and core.statistics.n_sample == 0
    about, edges = described(core.layout)
    arrays: dict[str, Array] = {
        name: _device.to_device(array, _device.CPU)
        for name, array in _owned(core).items()
        if not (compact and name in _COUNTED)
    } | edges
    dtype, precision = _arithmetic(core)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "dtype": dtype,
        "precision": precision,
        **about,
        "stream": [int(word) for word in core.stream.words],
        "n_drawn": core.n_drawn,
        "n_sample": core.statistics.n_sample,
        "weight": core.statistics.weight,
        "exponent": core.statistics.exponent,
        "centred": True,  # statistics of Gaussians are about their means
    }
    if compact:
        header["compact"] = True
    held = core.momenta if momenta else None
    if held is not None:
        header["momenta"] = [held.method, held.fade, held.fade2]
        for name in _MOMENTA:
            arrays[f"momenta_{name}"] = _device.to_device(getattr(held, name), _device.CPU)
    return {"header": header, "arrays": arrays}


def rebuild(state: dict[str, Any]) -> list[Nodes]:
    """Rebuild the node vectors of a state; returns the roots."""
    header, arrays = state["header"], state["arrays"]
    if header.get("version") != VERSION:
        raise FormatError(
            f"the file holds a circuit of format version {header.get('version')!r}, need {VERSION}"
        )
    try:
        made: list[Nodes] = []
        for k, about in enumerate(header["nodes"]):
            made.append(_one(k, about, made, arrays))
        for nodes, about in zip(made, header["nodes"], strict=True):
            if "source" in about:  # the owner may come later
                nodes.source = made[about["source"]]
        return [made[k] for k in header["roots"]]
    except (KeyError, IndexError, TypeError, AttributeError, RpukitError) as error:
        raise FormatError(f"the file describes no valid circuit: {error}") from error


def _one(k: int, about: dict[str, Any], made: list[Nodes], arrays: dict[str, Array]) -> Nodes:
    children, size = [made[c] for c in about["children"]], about["block_size"]
    if about["kind"] == "input":
        home = densities if about["leaf"] in densities.__all__ else leaves
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in about["leaf_parameters"].items()
        }
        leaf = getattr(home, about["leaf"])(**given)
        return inputs(about["var"], leaf, about["n_node"], block_size=size)
    if about["kind"] == "product":
        return product(*children, node_edges=arrays[f"edges_{k}"], block_size=size)
    mask = arrays.get(f"zero_mask_{k}")
    edges, n = arrays[f"edges_{k}"], about["n_node"]
    return sum(*children, n_nodes=n, edges=edges, block_size=size, zero_mask=mask)


def take_state(core: Core, state: dict[str, Any]) -> None:
    """Copy the arrays of a state into a circuit made by `rebuild`."""
    owned, momenta = _owned(core), state["header"].get("momenta")
    if momenta is not None:
        core.momenta = Momenta.zeros(core.parameters, core.statistics, *momenta)
        owned |= {f"momenta_{name}": getattr(core.momenta, name) for name in _MOMENTA}
    for name, array in owned.items():
        if name in _COUNTED and state["header"].get("compact"):
            continue  # no sample: they are 0
        given = state["arrays"].get(name)
        if given is None or given.shape != array.shape or given.dtype != array.dtype:
            got = "none" if given is None else f"{given.dtype} of shape {given.shape}"
            raise FormatError(
                f"array {name!r} of the file: got {got}, need {array.dtype} of shape {array.shape}"
            )
        array[...] = core.parameters.on_device(given)
    core.parameters.refresh_all()
    header, statistics = state["header"], core.statistics
    if not header.get("centred"):  # of an older version: moments about 0
        statistics.leaf_totals += statistics.leaf_chains
        statistics.leaf_chains[:] = 0
        for source in core.parameters.sources:
            flow = statistics.leaf_totals[source.statistic]
            shift_moments(source, core.parameters, flow, back=True)
    core.stream, core.n_drawn = Stream(*header["stream"]), int(header["n_drawn"])
    core.statistics.resume(int(header["n_sample"]), float(header["weight"]))
    core.statistics.exponent = float(header.get("exponent", 1.0))
