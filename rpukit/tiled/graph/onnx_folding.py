"""Constant folding of ONNX models, by the package's own shape inference and evaluator."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from rpukit.errors import GraphError

__all__ = ["fold", "prepared", "without_functions"]

_EQUATION = re.compile(r"(?:[A-Za-z ,]|\.\.\.)*(?:->(?:[A-Za-z ]|\.\.\.)*)?")
_DOMAINS = ("", "ai.onnx")
_RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Dropout")
_SMALL = 1 << 10  # elements of a constant that shape inference may look at
_MOST = 1 << 26  # elements of a folded constant: a larger one would fill the memory of a target


def prepared(model: Any) -> Any:
    """Inline the functions of a model.

    Parameters
    ----------
    model : onnx.ModelProto

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If an Einsum has an equation that shape inference would not return from.
    """
    for node in (n for n in model.graph.node if n.op_type == "Einsum"):
        given = next((a.s.decode(errors="replace") for a in node.attribute), "")
        if not _EQUATION.fullmatch(given):
            raise GraphError(f"node {node.name} (Einsum): equation: got {given!r}, need letters")
    if model.functions:
        model = import_module("onnx.inliner").inline_local_functions(model)
    return model


def _inferred(model: Any) -> Any:
    try:
        return import_module("onnx.shape_inference").infer_shapes(model, data_prop=True)
    except Exception:  # protobuf and the checker have errors of their own
        return model


def fold(
    model: Any, values: Mapping[str, np.ndarray], trained: Collection[str]
) -> tuple[Any, dict[str, np.ndarray]]:
    """Compute the nodes whose inputs are constants, and shapes again with what they give.

    Parameters
    ----------
    model : onnx.ModelProto
    values : mapping of str to array
        Constants of the file.
    trained : collection of str
        Those that are no constants, since training changes them.

    Returns
    -------
    model : onnx.ModelProto
        With the other nodes.
    values : dict of str to array
        The constants, with those that were computed.
    """
    known = dict(values)
    _declare(model, known, {tensor.name for tensor in model.graph.initializer})
    model = _inferred(model)
    if any(node.domain == "ai.onnx.ml" for node in model.graph.node):
        model = _with_classical_shapes(model)
    while True:
        rest, found = _folded_once(model, known, trained)
        del model.graph.node[:]
        model.graph.node.extend(rest)
        new = found.keys() - known.keys()
        if not new:
            return model, found
        _declare(model, found, new)
        model, known = _inferred(model), found


def _with_classical_shapes(model: Any) -> Any:
    """Tell shape inference the results of operators of classical models."""
    helper = import_module("onnx").helper
    for node in model.graph.node:
        shape = _known_shapes(model).get(node.input[0]) if node.domain == "ai.onnx.ml" else None
        if shape is None or node.op_type not in ("Scaler", "Normalizer", "LinearRegressor"):
            continue
        if node.op_type == "LinearRegressor":
            sizes = [len(a.floats) for a in node.attribute if a.name == "coefficients"]
            shape = (shape[0], sizes[0] // shape[1])
        model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], 1, shape))
        model = _inferred(model)
    return model


def _declare(model: Any, values: Mapping[str, np.ndarray], names: Collection[str]) -> None:
    """Tell shape inference of constants: values of small ones, which may be shapes, types of all.

    Inference copies the whole model, so that large constants would take long.
    """
    onnx, graph = import_module("onnx"), model.graph
    there = {value.name for value in graph.input}
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for name in names:
        value = values[name]
        if value.size <= _SMALL:
            graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        elif name not in there:
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))


def without_functions(
    model: Any,
    values: Mapping[str, np.ndarray],
    trained: Collection[str],
    known: Callable[[str], bool],
) -> tuple[Any, dict[str, np.ndarray]]:
    """Inline the operators that are not known, and that ONNX defines by others.

    Parameters
    ----------
    model, values, trained
        As in `fold`.
    known : callable
        Whether an operator needs no inlining.

    Returns
    -------
    model : onnx.ModelProto
    values : dict of str to array
    """
    wanted = {
        ("", node.op_type)
        for node in model.graph.node
        if node.domain in _DOMAINS and not known(node.op_type) and _defined(node.op_type)
    }
    if not wanted:
        return model, dict(values)
    try:
        made = import_module("onnx.inliner").inline_selected_functions(
            model, sorted(wanted), inline_schema_functions=True
        )
    except Exception:  # protobuf and the inliner have errors of their own
        return model, dict(values)
    return fold(made, values, trained)


def _defined(op: str) -> bool:
    """Tell whether ONNX defines an operator by a function of others."""
    defs = import_module("onnx").defs
    if not defs.has(op):
        return False
    schema = defs.get_schema(op)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _folded_once(
    model: Any, values: Mapping[str, np.ndarray], trained: Collection[str]
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Compute the nodes whose inputs are constants, in one pass."""
    found, rest = dict(values), []
    fixed = set(values) - set(trained)
    shapes, copies = _known_shapes(model), {*trained, *_statistics(model)}
    for node in model.graph.node:
        result = None
        if node.domain in _DOMAINS and node.op_type not in _RANDOM and len(node.output) == 1:
            if node.op_type == "Shape":
                result = _shape(node, shapes, found)
            elif node.op_type == "Identity" and node.output[0] in copies:
                result = found.get(node.input[0])  # exporters share initialisers of equal values
            elif node.input and all(name in fixed for name in node.input if name):
                result = _computed(model, node, found)
        if result is None:
            rest.append(node)
        else:
            found[node.output[0]] = result
            fixed |= {node.output[0]} - set(trained)
    return rest, found


def _statistics(model: Any) -> set[str]:
    """Find the means and variances of normalisations, which no training changes."""
    return {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }


def _known_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Find the shapes of all tensors without unknown dimensions."""
    found = {}
    graph = model.graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            found[value.name] = tuple(d.dim_value for d in kind.shape.dim)
    return found


def _shape(
    node: Any, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    name = node.input[0]
    shape = values[name].shape if name in values else shapes.get(name)
    if shape is None:
        return None
    ends = {a.name: a.i for a in node.attribute}
    return np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], np.int64)


def _computed(model: Any, node: Any, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Compute one node; None where that is not possible."""
    onnx = import_module("onnx")
    if any(
        a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute
    ):
        return None
    helper = onnx.helper
    names = sorted(set(filter(None, node.input)))
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in names
    ]
    output = helper.make_empty_tensor_value_info(node.output[0])
    graph = helper.make_graph([node], "folded", inputs, [output])
    one = helper.make_model(graph, opset_imports=model.opset_import)
    try:
        evaluator = import_module("onnx.reference").ReferenceEvaluator(one)
        (result,) = evaluator.run(None, {name: values[name] for name in names})
    except Exception:  # of any class: the evaluator lacks an op, or has a bug
        return None
    array = np.asarray(result)
    return array if array.size <= _MOST else None
