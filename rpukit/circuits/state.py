"""The state of a circuit as JSON and plain arrays, for `rpukit.save`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._files.schema import (
    COUNT,
    FLAG,
    TALLY,
    WORD,
    anything,
    as_format_error,
    check_arrays,
    check_memory,
    fail,
    integer,
    listing,
    number,
    record,
    setting,
    table,
    text,
)
from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.core import Core
from rpukit.circuits.graph import continuous, counted, densities, leaves
from rpukit.circuits.graph.evaluated import leaf_of_name
from rpukit.circuits.graph.nodes import (
    InputNodes,
    Nodes,
    ProductNodes,
    SumNodes,
    inputs,
    product,
    sum,
)
from rpukit.circuits.graph.traversal import walk
from rpukit.circuits.momenta import Momenta
from rpukit.circuits.parameters import shift_moments
from rpukit.errors import FormatError
from rpukit.random import Stream

__all__ = ["FORMAT", "VERSION", "check_state", "rebuild", "state_of", "structure_of", "take_state"]

Array = Any

FORMAT, VERSION = "rpukit.Circuit", 1
_MOMENTA = ("first", "leaf_first", "second", "leaf_second")
_NODE = {
    "kind": text("input", "product", "sum"),
    "n_node": integer(1, 1 << 40),
    "block_size": integer(1, 1 << 40),
    "children": listing(COUNT),
}
_LEAF = {"var": COUNT, "leaf": text(), "leaf_parameters": table(setting)}
_SOURCE = {"source": COUNT}
_KINDS = {
    "input": record({**_NODE, **_LEAF}, {**_SOURCE, "columns": listing(COUNT)}),
    "product": record(_NODE),
    "sum": record(_NODE, _SOURCE),
}
_HEADER = record(
    {
        **dict.fromkeys(("format", "version", "nodes"), anything),
        "dtype": text("float32", "float64"),
        "roots": listing(COUNT),
        "stream": listing(WORD, 2),
        "n_drawn": COUNT,
        "n_sample": TALLY,
        "weight": number(),
    },
    {
        "precision": text("fp32", "bf16", "bf16x3"),
        "exponent": number(),
        "centred": FLAG,
        "momenta": listing(anything, 3),
        "compact": FLAG,
    },
)
_PER_ROW = 64  # bytes of tables and values of one node, at least
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
    owners: dict[int, int] = {}  # an owner outside the circuit is stood for by its first copy
    for k, nodes in enumerate(layout.nodes):
        about: dict[str, Any] = {
            "kind": nodes.KIND,
            "n_node": nodes.n_node,
            "block_size": nodes.block_size,
            "children": [places[child.number] for child in nodes.children],
        }
        number = nodes.source.number
        owner = places.get(number, owners.setdefault(number, k))
        if owner != k:
            about["source"] = owner
        if isinstance(nodes, InputNodes):
            about |= {"var": nodes.var, "leaf": type(nodes.leaf).__name__}
            about["leaf_parameters"] = asdict(nodes.leaf)
            if len(nodes.columns) > 1:
                about["columns"] = list(nodes.columns)
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
    return core.dtype.name, core.parameters.precision


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


def check_state(state: Any) -> dict[str, Any]:
    """Check that a header describes a circuit of the size of the arrays; return the header.

    Instead of arrays there may be records of their shapes and types.
    """
    if not isinstance(state, dict) or not {"header", "arrays"} <= state.keys():
        raise FormatError("state: need a dictionary with header and arrays, as from state()")
    header, arrays = state["header"], state["arrays"]
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FormatError(f"state: this is not a {FORMAT}")
    if header.get("version") != VERSION:
        raise FormatError(
            f"the file holds a circuit of format version {header.get('version')!r}, need {VERSION}"
        )
    header = dict(_HEADER(header, "header"))
    nodes = listing(_node)(header["nodes"], "header.nodes")
    needed = {name: _flat(0, header["dtype"]) for name in ("theta", "leaf_parameters", "chains")}
    sizes = {"theta": 0, "leaf_parameters": 0, "leaf_totals": 0}
    with as_format_error("header.nodes"):
        for k, about in enumerate(nodes):
            needed |= _needed(k, about, nodes, arrays, sizes)
        for k in header["roots"]:
            if not k < len(nodes):
                raise fail("roots", k, f"a number below {len(nodes)}")
    n_row = int(np.sum([float(about["n_node"]) for about in nodes]))
    check_memory("header.nodes", _PER_ROW * n_row)
    n_theta, n_leaf, n_total = sizes.values()
    for name in _ARRAYS:
        if header.get("compact") and name in _COUNTED:
            needed.pop(name, None)
            continue
        size = n_total if name in ("leaf_chains", "leaf_totals") else n_theta
        kind = "float64" if name.endswith("totals") else header["dtype"]
        needed[name] = _flat(n_leaf if name == "leaf_parameters" else size, kind)
    if header.get("momenta") is not None:
        method, *fades = header["momenta"]
        text("scaled_em", "sgd", "adam")(method, "header.momenta[0]")
        for k, fade in enumerate(fades, start=1):
            number(0, 1)(fade, f"header.momenta[{k}]")
        second = (n_theta, n_leaf) if method == "adam" else (0, 0)
        lengths = (n_theta, n_total if method == "scaled_em" else n_leaf, *second)
        for name, size in zip(_MOMENTA, lengths, strict=True):
            needed[f"momenta_{name}"] = _flat(size, "float64")
    check_arrays(arrays, needed)
    return header


@dataclass(frozen=True, slots=True)
class _Needed:
    """Shape and type that an array of a state needs to have."""

    shape: tuple[int, ...]
    dtype: Any


def _flat(size: int, kind: str) -> _Needed:
    return _Needed((size,), np.dtype(kind))


def _node(about: Any, where: str) -> dict[str, Any]:
    """Check one entry of a graph by its kind."""
    kind = about.get("kind") if isinstance(about, dict) else None
    checked: dict[str, Any] = _KINDS[text(*_KINDS)(kind, f"{where}.kind")](about, where)
    return checked


def _needed(
    k: int, about: dict[str, Any], nodes: list[dict[str, Any]], arrays: Any, sizes: dict[str, int]
) -> dict[str, _Needed]:
    """List the arrays of one entry of a graph, and add what it owns to the sizes of others."""
    kind, n, size, children = (about[x] for x in ("kind", "n_node", "block_size", "children"))
    if (kind == "input") != (not children) or max(children, default=-1) >= k:
        raise fail(f"[{k}].children", children, f"numbers below {k}, none of an input")
    owner = nodes[about["source"]] if "source" in about else about
    if "source" in owner and owner is not about:
        raise fail(f"[{k}].source", about["source"], "the owner of parameters")
    same = ("kind", "n_node", "block_size", "leaf", "leaf_parameters")
    if [owner.get(x) for x in same] != [about.get(x) for x in same]:
        raise fail(f"[{k}].source", about["source"], "an entry of equal sizes")
    if kind == "input":
        leaf = _leaf(about)
        most, own = leaf.n_columns * len(nodes), about.get("columns", [about["var"]])
        if not (len(own) == leaf.n_columns and own[0] == about["var"] and max(own) < most):
            name = "columns" if "columns" in about else "var"
            raise fail(f"[{k}].{name}", own, f"{leaf.n_columns} numbers below {most}")
        if owner is about:
            sizes["leaf_parameters"] += n * leaf.n_parameters
            sizes["leaf_totals"] += n * (leaf.n_statistics + 1)
        return {}
    edges = f"edges_{k}"
    if kind == "product":
        return {edges: _Needed((n, len(children)), np.dtype(np.int64))}
    sides = [[(nodes[c]["n_node"], nodes[c]["block_size"]) for c in one["children"]]
             for one in (owner, about)]  # fmt: skip
    if sides[0] != sides[1]:
        raise fail(f"[{k}].source", about["source"], "an entry with children of equal sizes")
    n_edge = arrays[edges].shape[-1]
    if owner is about:
        sizes["theta"] += n_edge * size * sides[0][0][1]
    needed = {edges: _Needed((2, n_edge), np.dtype(np.int64))}
    if f"zero_mask_{k}" in arrays:
        needed[f"zero_mask_{k}"] = _Needed((n_edge, size, sides[0][0][1]), np.dtype(bool))
    return needed


def rebuild(state: dict[str, Any]) -> list[Nodes]:
    """Rebuild the node vectors of a checked state; returns the roots."""
    header, arrays = state["header"], state["arrays"]
    made: list[Nodes] = []
    for k, about in enumerate(header["nodes"]):
        made.append(_one(k, about, made, arrays))
    for k, about in enumerate(header["nodes"]):
        if "source" in about:  # the owner may come later
            nodes, owner = made[k], made[about["source"]]
            if isinstance(nodes, SumNodes) and (nodes.edges != owner.edges).any():
                raise FormatError(f"array edges_{k}: not those of its source")
            nodes.source = owner
    roots = [made[k] for k in header["roots"]]
    if len(list(walk(roots))) < len(made):
        raise FormatError(f"header.roots: got {header['roots']}, below which not all nodes are")
    return roots


def _leaf(about: dict[str, Any]) -> leaves.Leaf:
    homes = (leaves, densities, counted, continuous)
    known = {name: home for home in homes for name in home.__all__}
    name = about["leaf"]
    kind = getattr(known[name], name) if name in known else leaf_of_name(name)
    if kind is None:
        raise FormatError(
            f"the file holds a leaf {name!r}: define its class, and register its functions by "
            "rk.circuits.register_leaf, before loading"
        )
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in about["leaf_parameters"].items()
    }
    leaf: leaves.Leaf = kind(**given)
    return leaf


def _one(k: int, about: dict[str, Any], made: list[Nodes], arrays: dict[str, Array]) -> Nodes:
    children, size = [made[c] for c in about["children"]], about["block_size"]
    if about["kind"] == "input":
        own = about.get("columns", about["var"])
        return inputs(own, _leaf(about), about["n_node"], block_size=size)
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
    if state["header"].get("compact"):  # no sample: counts are 0
        owned = {name: array for name, array in owned.items() if name not in _COUNTED}
    check_arrays({name: state["arrays"][name] for name in owned}, owned)
    for name, array in owned.items():
        array[...] = core.parameters.on_device(state["arrays"][name])
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
