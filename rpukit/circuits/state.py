"""The state of a circuit as JSON and plain arrays, for `rpukit.save`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rpukit import _device
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
from rpukit.circuits.learning.gradient import Momenta
from rpukit.errors import FormatError, RpukitError

if TYPE_CHECKING:
    from rpukit.circuits.circuit import Circuit

__all__ = ["FORMAT", "VERSION", "rebuild", "state_of", "take_state"]

Array = Any

FORMAT, VERSION = "rpukit.Circuit", 1
_MOMENTA = ("first", "leaf_first", "second", "leaf_second")
_ARRAYS = ("theta", "leaf_parameters", "chains", "totals", "leaf_chains", "leaf_totals")


def _owned(pc: Circuit) -> dict[str, Array]:
    """All arrays of a circuit by their names in a file."""
    own, held = pc._parameters, pc._statistics
    arrays = (own.theta, own.rows.parameters, held.chains, held.totals)
    return dict(zip(_ARRAYS, (*arrays, held.leaf_chains, held.leaf_totals), strict=True))


def state_of(pc: Circuit) -> dict[str, Any]:
    """Give all that a circuit is: ``header`` (JSON) and ``arrays``."""
    places = {nodes.number: k for k, nodes in enumerate(pc.layout.nodes)}
    arrays: dict[str, Array] = {
        name: _device.to_device(array, _device.CPU) for name, array in _owned(pc).items()
    }
    described = []
    for k, nodes in enumerate(pc.layout.nodes):
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
        described.append(about)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "dtype": pc.dtype.name,
        "precision": pc.precision,
        "roots": [places[root.number] for root in pc.layout.roots],
        "nodes": described,
        "stream": [int(word) for word in pc._stream.words],
        "n_drawn": pc._n_drawn,
        "n_sample": pc._statistics.n_sample,
        "weight": pc._statistics.weight,
        "exponent": pc._statistics.exponent,
    }
    momenta = pc._momenta
    if momenta is not None:
        header["momenta"] = [momenta.method, momenta.fade, momenta.fade2]
        for name in _MOMENTA:
            arrays[f"momenta_{name}"] = _device.to_device(getattr(momenta, name), _device.CPU)
    return {"header": header, "arrays": arrays}


def rebuild(state: dict[str, Any]) -> list[Nodes]:
    """Make the node vectors of a state; returns the roots."""
    header, arrays = state["header"], state["arrays"]
    if header.get("version") != VERSION:
        raise FormatError(f"a circuit of version {header.get('version')!r}: need {VERSION}")
    try:
        made: list[Nodes] = []
        for k, about in enumerate(header["nodes"]):
            made.append(_one(k, about, made, arrays))
        for nodes, about in zip(made, header["nodes"], strict=True):
            if "source" in about:  # the owner may come later
                nodes.source = made[about["source"]]
        return [made[k] for k in header["roots"]]
    except (KeyError, IndexError, TypeError, AttributeError, RpukitError) as error:
        raise FormatError(f"the file describes no circuit: {error}") from error


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


def take_state(pc: Circuit, state: dict[str, Any]) -> None:
    """Put the arrays of a state into a circuit made of `rebuild`."""
    owned, momenta = _owned(pc), state["header"].get("momenta")
    if momenta is not None:
        pc._momenta = Momenta(*momenta, *pc._zeros(momenta[0]))
        owned |= {f"momenta_{name}": getattr(pc._momenta, name) for name in _MOMENTA}
    for name, array in owned.items():
        given = state["arrays"].get(name)
        if given is None or given.shape != array.shape or given.dtype != array.dtype:
            raise FormatError(f"array {name!r}: need {array.dtype} of shape {array.shape}")
        array[...] = pc._parameters.on_device(given)
    pc._parameters.refresh_all()
    header = state["header"]
    pc._statistics.resume(int(header["n_sample"]), float(header["weight"]))
    pc._statistics.exponent = float(state["header"].get("exponent", 1.0))
