"""Training and optimiser graphs from ONNX files (extra ``onnx``)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rpukit._files.schema import DAMAGE
from rpukit.errors import FormatError, GraphError, OnnxError, RpukitError
from rpukit.tiled import ops
from rpukit.tiled.graph.make import Graph, infer, make_graph
from rpukit.tiled.graph.onnx_folding import fold, prepared, without_functions
from rpukit.tiled.graph.rewrites.reading import Reading
from rpukit.tiled.graph.rewrites.table import REWRITES, rewritten
from rpukit.tiled.ir import Node, Tensor, Training, sort_nodes

__all__ = ["from_onnx", "training_from_onnx"]

Parts = tuple[list[Node], list[Tensor], dict[str, np.ndarray], list[str]]
# Inputs that hold a shape or axes and have to be constant: op -> (which, attribute)
_CONSTANT_INPUTS = {
    "Reshape": (1, "shape"),
    "Squeeze": (1, "axes"),
    "Unsqueeze": (1, "axes"),
    "ReduceSum": (1, "axes"),
    "ReduceMean": (1, "axes"),
}
# Outputs that are not supported: op -> the first of them
_UNUSED_OUTPUTS = {"MaxPool": 1, "AveragePool": 1}
_FOLDED = ("Constant", "Shape")
_ROWS_FROM_AXIS = ("Softmax", "LogSoftmax")  # before opset 13: over all axes from `axis` onwards


def from_onnx(path: str | Path, *, dtype: Any = np.float32) -> Graph:
    """Read a graph from an ONNX file.

    Parameters
    ----------
    path : str or Path
    dtype : {float32, float64}
        Dtype of the computation; float values of the file are cast.

    Returns
    -------
    Graph

    Raises
    ------
    OnnxError
        If the package onnx is missing.
    FormatError
        If the file is not ONNX.
    GraphError
        If it has operators that cannot be read: one message names all of them, their nodes, and
        what could stand in.
    """
    with as_graph_error(path):
        nodes, inputs, constants, outputs = read_nodes(path, dtype)
        used = {name for node in nodes for name in node.inputs}
        kept = {name: value for name, value in constants.items() if name in used}
        return make_graph(Path(path).stem, nodes, inputs, outputs, kept)


@contextmanager
def as_graph_error(path: str | Path) -> Iterator[None]:
    """Turn what attributes or values of other kinds than ONNX says raise into a graph error."""
    try:
        yield
    except RpukitError:
        raise
    except DAMAGE as error:
        raise GraphError(
            f"{path}: damaged, or not as ONNX describes its operators: "
            f"{type(error).__name__}: {error}"
        ) from error


def training_from_onnx(
    train: str | Path, optimiser: str | Path, *, dtype: Any = np.float32
) -> Training:
    """Read a training graph and its optimiser's graph, and find the roles of their tensors.

    Parameters
    ----------
    train : str or Path
        Inputs: data, labels or target, others such as masks, parameters, one
        ``..._grad.accumulation.buffer`` for each, a flag that resets them. Outputs: the loss, then
        the accumulators.
    optimiser : str or Path
        Inputs: each parameter and its accumulator, and the optimiser's state.
    dtype : {float32, float64}

    Returns
    -------
    Training
        Without values of the parameters: such files do not contain them.

    Raises
    ------
    OnnxError, FormatError, GraphError
    """
    first, second = from_onnx(train, dtype=dtype), from_onnx(optimiser, dtype=dtype)
    return training_of(first, second)


def training_of(train: Graph, optimiser: Graph) -> Training:
    """Find the roles of a training graph's inputs from the nodes that use them.

    Parameters
    ----------
    train, optimiser : Graph

    Returns
    -------
    Training

    Raises
    ------
    GraphError
    """
    adders = [node for node in train.nodes if node.op == "InPlaceAccumulatorV2"]
    accumulators = tuple(node.inputs[0] for node in adders)
    resets = {node.inputs[2] for node in adders}
    pairs = {
        node.inputs[1]: node.inputs[0]
        for node in optimiser.nodes
        if node.op in ("SGD", "MomentumSGD", "Adam")
    }
    lost = sorted(set(accumulators) ^ set(pairs))
    if not adders or len(resets) != 1 or lost:
        raise GraphError(
            f"{train.name}: need accumulators with one reset flag, each read by one update of "
            f"{optimiser.name}; without partner: {', '.join(lost) or 'none'}"
        )
    parameters = tuple(pairs[name] for name in accumulators)
    known = {*accumulators, *parameters, *resets}
    data = [name for name in train.inputs if name not in known]
    missing = [name for name in parameters if name not in train.inputs]
    if len(data) < 2 or missing or not train.outputs:
        raise GraphError(
            f"{train.name}: need inputs data and target besides parameters, accumulators and the "
            f"reset flag, got {data}; parameters that are no inputs: {missing}"
        )
    for name in (*accumulators, *parameters):
        if train.tensors[name] != optimiser.tensors[name]:
            raise GraphError(
                f"{name}: {train.tensors[name]} in {train.name}, but {optimiser.tensors[name]} "
                f"in {optimiser.name}"
            )
    order = sorted(range(len(parameters)), key=lambda i: train.inputs.index(parameters[i]))
    state = tuple(
        name for name in optimiser.inputs if name not in parameters and name not in accumulators
    )
    return Training(
        train,
        optimiser,
        data[0],
        data[1],
        tuple(parameters[i] for i in order),
        tuple(accumulators[i] for i in order),
        resets.pop(),
        train.outputs[0],
        state,
        extra=tuple(data[2:]),
    )


def _load(path: str | Path) -> Any:
    try:
        onnx = import_module("onnx")
    except ImportError:
        raise OnnxError('reading ONNX needs onnx: pip install "rpukit[onnx]"') from None
    try:
        model = onnx.load(str(path))
    except OSError:
        raise
    except Exception as error:  # protobuf has errors of its own
        raise FormatError(f"{path}: not an ONNX model: {error}") from None
    if not model.graph.node:
        raise FormatError(f"{path}: an ONNX model without nodes")
    return model


def _value(array: np.ndarray, real: str) -> np.ndarray:
    """Cast floats to the dtype of the graph, and signed integers to int64.

    Infinities, which masks hold, become the largest finite numbers, as numbers beyond the type do.
    """
    if array.dtype.kind != "f":
        return array.astype(_integer(array.dtype))
    with np.errstate(over="ignore"):
        made = array.astype(real)
    return np.where(np.isinf(made), np.copysign(np.finfo(real).max, made), made).astype(real)


def _integer(dtype: np.dtype[Any]) -> str:
    return "int64" if dtype.kind == "i" else dtype.name


def read_nodes(
    path: str | Path,
    dtype: Any,
    trained: Collection[str] = (),
    wanted: Collection[str] | None = None,
    batch_statistics: bool = False,
    batch_size: int | None = None,
) -> Parts:
    """Read the nodes of a file, its inputs, its constants and the names of its outputs.

    Parameters
    ----------
    path : str or Path
    dtype : {float32, float64}
    trained : collection of str, optional
        Initialisers that training changes, so that nothing is folded into them.
    wanted : collection of str, optional
        Tensors to compute; what these do not need is left out. Default: the file's outputs.
    batch_statistics : bool, optional
        Whether every BatchNormalization uses statistics of the batch.
    batch_size : int, optional
        Length of first dimensions of inputs that the file leaves open.

    Returns
    -------
    nodes : list of Node
    inputs : list of Tensor
    constants : dict of str to array
    outputs : list of str
    """
    raw, real = _load(path), np.dtype(dtype).name
    told = _shapes_of((*raw.graph.value_info, *raw.graph.output))
    model = prepared(raw if batch_size is None else _with_batch(raw, batch_size))
    helper, to_array = (import_module(f"onnx.{name}") for name in ("helper", "numpy_helper"))
    to_array = to_array.to_array
    graph = model.graph
    values = {t.name: to_array(t) for t in graph.initializer}
    values |= {node.output[0]: _constant(_node(node, 0), to_array)
               for node in graph.node if node.op_type == "Constant"}  # fmt: skip
    inputs = _inputs(path, graph, values, real)
    model, values = fold(model, values, trained)
    model, values = without_functions(model, values, trained, _known)
    graph = model.graph
    nodes = [_node(proto, k) for k, proto in enumerate(graph.node) if proto.op_type != "Constant"]
    every = (*graph.input, *graph.value_info, *graph.output)
    types = {
        v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).name
        for v in every
        if v.type.tensor_type.elem_type
    }
    types |= {name: value.dtype.name for name, value in values.items()}
    shapes = {name: shape for name, shape in _shapes_of(every).items() if all(shape)}
    shapes |= {name: value.shape for name, value in values.items()}
    outputs = [v.name for v in graph.output] if wanted is None else list(wanted)
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=13)
    nodes = nodes if wanted is None else _needed(nodes, outputs, path, values)
    reading = Reading(graph.name, values, trained, types, shapes, outputs, opset, batch_statistics)
    nodes = [_with_told_shape(node, told) for node in _unique(nodes)]
    known = [*values, *(tensor.name for tensor in inputs)]
    nodes = rewritten(sort_nodes(nodes, known), reading, _FOLDED)
    used = {name for node in nodes for name in node.inputs} | {*outputs, *trained}
    constants = {n: _value(v, real) for n, v in reading.constants.items() if n in used}
    nodes, constants = _folded(nodes, inputs, constants)
    nodes = list(sort_nodes(nodes, [*constants, *(tensor.name for tensor in inputs)]))
    if opset < 13 and any(node.op in _ROWS_FROM_AXIS for node in nodes):
        nodes = _with_rows_of_opset_1(nodes, inputs, constants)
    return nodes, inputs, constants, outputs


def _with_batch(model: Any, size: int) -> Any:
    """Set first dimensions that are open; shapes that follow from them are found anew."""
    given = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name not in given and dims and not dims[0].dim_value:
            dims[0].dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _known(op: str) -> bool:
    return ops.known(op) or op in REWRITES or op in _FOLDED


def _needed(
    nodes: Sequence[Node], outputs: Sequence[str], path: str | Path, given: Collection[str]
) -> list[Node]:
    """Find the nodes that some tensors depend on."""
    made = {name: node for node in nodes for name in node.outputs}
    lost = [name for name in outputs if name not in made and name not in given]
    if lost:
        raise GraphError(
            f"{path}: outputs: no node produces {', '.join(lost)}; need some of "
            f"{', '.join(sorted(filter(None, made)))}"
        )
    rest, found = list(outputs), set[str]()
    while rest:
        node = made.get(rest.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            rest += node.inputs
    return [node for node in nodes if node.name in found]


def _node(proto: Any, number: int) -> Node:
    value_of = import_module("onnx").helper.get_attribute_value
    attributes = {a.name: _attribute(a.name, value_of(a)) for a in proto.attribute}
    name = proto.name or f"{proto.op_type}_{number}"
    return Node(name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes)


def _shapes_of(values: Iterable[Any]) -> dict[str, tuple[int, ...]]:
    """Read shapes; an unknown dimension is 0."""
    return {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}


def _inputs(path: str | Path, graph: Any, values: Collection[str], real: str) -> list[Tensor]:
    """Read the inputs that are no initialisers."""
    type_of = import_module("onnx").helper.tensor_dtype_to_np_dtype
    inputs = []
    for value in graph.input:
        if value.name not in values:
            shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
            if not all(shape):
                raise GraphError(
                    f"{path}: input {value.name} has unknown dimensions: {shape}; export "
                    f"with fixed ones, or give batch_size"
                )
            kind = type_of(value.type.tensor_type.elem_type)
            name = real if kind.kind == "f" else _integer(kind)
            inputs.append(Tensor(value.name, shape, name))
    return inputs


def _constant(node: Node, to_array: Any) -> np.ndarray:
    """Read the value of a Constant from whichever attribute holds it."""
    kinds = {"value_float": "f4", "value_floats": "f4", "value_int": "i8", "value_ints": "i8"}
    if "value" in node.attributes:
        return np.asarray(to_array(node.attributes["value"]))
    for name, kind in kinds.items():
        if name in node.attributes:
            return np.array(node.attributes[name], kind)
    found = ", ".join(node.attributes) or "nothing"
    raise GraphError(
        f"node {node.name} (Constant): got {found}, need one of value, {', '.join(kinds)}"
    )


def _with_rows_of_opset_1(
    nodes: Sequence[Node], inputs: Sequence[Tensor], constants: Mapping[str, np.ndarray]
) -> list[Node]:
    """Rewrite Softmax of before opset 13: a row is all axes from `axis` (default 1) onwards."""
    tensors = {tensor.name: tensor for tensor in inputs}
    tensors |= {key: Tensor(key, v.shape, v.dtype.name) for key, v in constants.items()}
    made = []
    for node in nodes:
        parts = [node]
        if node.op in _ROWS_FROM_AXIS:
            shape, axis = tensors[node.inputs[0]].shape, node.attributes.get("axis", 1)
            if not -len(shape) <= axis < len(shape):
                raise GraphError(
                    f"node {node.name} ({node.op}): axis: got {axis} for {len(shape)} axes"
                )
            axis %= len(shape)
            (x, *_), (y, *_), name = node.inputs, node.outputs, node.name
            parts = [Node(name, node.op, (x,), (y,), {"axis": axis})]
            if math.prod(shape[axis + 1 :]) > 1:
                flat, rows = f"{name}/flat", f"{name}/rows"
                parts = [
                    Node(flat, "Flatten", (x,), (flat,), {"axis": axis}),
                    Node(name, node.op, (flat,), (rows,), {"axis": 1}),
                    Node(rows, "Reshape", (rows,), (y,), {"shape": shape, "allowzero": 1}),
                ]
        for part in parts:
            tensors |= infer(part, tensors)
        made += parts
    return made


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if name == "axes" and isinstance(value, int):  # some exporters write one number
        return (value,)
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _unique(nodes: Sequence[Node]) -> list[Node]:
    """Rename nodes so that all names are different."""
    seen: dict[str, int] = {}
    made = []
    for node in nodes:
        count = seen[node.name] = seen.get(node.name, 0) + 1
        name = node.name if count == 1 else f"{node.name}#{count}"
        made.append(Node(name, node.op, node.inputs, node.outputs, node.attributes))
    return made


def _with_told_shape(node: Node, told: Mapping[str, tuple[int, ...]]) -> Node:
    """Take a shape from the file where inputs do not determine it: strided gradients."""
    if node.op in ("ConvGradX", "AveragePoolGrad") and node.outputs[0] in told:
        attributes = {"input_shape": told[node.outputs[0]], **node.attributes}
        return Node(node.name, node.op, node.inputs, node.outputs, attributes)
    return node


def _folded(
    nodes: Sequence[Node], inputs: Sequence[Tensor], constants: dict[str, np.ndarray]
) -> tuple[list[Node], dict[str, np.ndarray]]:
    """Fold shapes that nodes compute, and turn inputs that hold them into attributes."""
    constants = dict(constants)
    shapes: dict[str, str] = {
        node.outputs[0]: node.inputs[0] for node in nodes if node.op == "Shape"
    }
    for node in nodes:
        if node.op == "Shape" and (node.attributes.get("start") or "end" in node.attributes):
            raise GraphError(f"node {node.name} (Shape): start and end are not supported")
    rest = [node for node in nodes if node.op != "Shape"]
    used = {name for node in rest for name in node.inputs}
    made = []
    for node in rest:
        op = node.op
        first = _UNUSED_OUTPUTS.get(node.op)
        outputs = node.outputs if first is None else node.outputs[:first]
        extra = [name for name in node.outputs[len(outputs) :] if name in used]
        if extra:
            raise GraphError(f"node {node.name} ({node.op}): output {extra[0]} is not supported")
        given, attributes = node.inputs, dict(node.attributes)
        place, name = _CONSTANT_INPUTS.get(node.op, (len(given), ""))
        if place < len(given):
            source = given[place]
            if source in constants:
                attributes[name] = tuple(int(n) for n in constants[source].reshape(-1))
                given = given[:place]
            elif op == "Reshape" and source in shapes:
                op, given = "ReshapeLike", (given[0], shapes[source])
            else:
                raise GraphError(
                    f"node {node.name} ({node.op}): {source} is computed, need a constant"
                )
        made.append(Node(node.name, op, given, outputs, attributes))
    return made, constants
