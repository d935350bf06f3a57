"""`Builder`: graphs and training graphs built in Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import flag, instance, integer, number, real_type, shown, text
from rpukit.analog import AnalogTile
from rpukit.errors import GraphError
from rpukit.tiled.graph.analog import TileRecord, check_tile, learning, periphery
from rpukit.tiled.graph.autodiff import gradients
from rpukit.tiled.graph.epilogues import fuse as fused
from rpukit.tiled.graph.make import Graph, make_graph
from rpukit.tiled.graph.onnx import as_graph_error, read_nodes
from rpukit.tiled.graph.optimisers import SGD, Adam, MomentumSGD, Optimiser, optimiser_graph
from rpukit.tiled.graph.tape import Sketch, finite_array, known_type
from rpukit.tiled.ir import Node, Training

__all__ = ["Builder"]

RESET = "reset"


class Builder:
    """Builds a graph op by op; tensors are referred to by their names.

    Parameters
    ----------
    name : str
    dtype : {float32, float64}

    Raises
    ------
    DTypeError

    Notes
    -----
    Ops with a gradient, and their inputs: ``Gemm`` (a, b[, c]; alpha, beta, transA, transB,
    activation: none or Relu), ``MatMul`` (a, b; activation), ``Conv`` (x, w[, b]; strides, pads,
    dilations, group), ``Add``, ``Sub``, ``Mul``, ``Div`` (a, b), ``Relu``, ``Gelu``, ``Tanh``,
    ``Sigmoid``, ``HardSwish``, ``Sqrt``, ``Exp``, ``Log``, ``Erf`` (x), ``Clip`` (x; min, max),
    ``LeakyRelu`` (x; alpha), ``GatherRows`` (table, indices), ``HardSigmoid`` (x; alpha, beta),
    ``Pow`` (x; exponent, a multiple of 0.5), ``Softmax``, ``LogSoftmax`` (x; axis),
    ``LayerNormalization`` (x, scale[, bias]; epsilon), ``BatchNormInternal`` (x, scale, bias,
    mean, variance; epsilon: statistics of the batch, the last two are not used), ``MaxPool``,
    ``AveragePool`` (x; kernel_shape, strides, pads), ``GlobalAveragePool`` (x), ``Transpose`` (x;
    perm), ``Reshape`` (x; shape), ``Flatten`` (x; axis), ``Squeeze``, ``Unsqueeze`` (x; axes),
    ``StopGradient`` (x; a constant of the backward pass), ``Quantize`` (x[, scale]; to) and
    ``Dequantize`` (x[, scale]; of), of int8 or float16,
    ``Slice`` (x; starts, ends, axes, steps), ``Concat`` (up to seven tensors; axis),
    ``ReduceSum``, ``ReduceMean`` (x; axes, keepdims), ``MSELoss`` (prediction, target),
    ``SoftmaxCrossEntropyLoss`` (scores, labels[, weights of classes]; reduction, ignore_index),
    ``NegativeLogLikelihoodLoss`` (log-probabilities and the same). Names and attributes are those
    of ONNX, which has no activation of a Gemm.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> b = rk.tiled.Builder("net")
    >>> x, target = b.input("x", (8, 16)), b.input("target", (8, 4))
    >>> w = b.parameter("w", np.full((4, 16), 0.1))
    >>> y = b.apply("Relu", b.apply("Gemm", x, w, transB=1))
    >>> training = b.training(b.apply("MSELoss", y, target), rk.tiled.SGD(lr=0.1))
    >>> training
    Training('net', 7 nodes, 64 parameters)
    """

    def __init__(self, name: str, *, dtype: Any = np.float32) -> None:
        real = real_type(dtype).name
        self.name = text(name, "name")
        self.outputs: tuple[str, ...] = ()
        self._sketch = Sketch(real)
        self._inputs: list[str] = []
        self._parameters: dict[str, np.ndarray] = {}
        self._kept: dict[str, np.ndarray] = {}
        self._fuse = False  # the default of `training`

    @classmethod
    def from_onnx(
        cls,
        path: str | Path,
        parameters: Mapping[str, Any] | Collection[str],
        *,
        outputs: Collection[str] | None = None,
        batch_statistics: bool = False,
        batch_size: int | None = None,
        dtype: Any = np.float32,
    ) -> Builder:
        """Read the forward graph of an ONNX file, to be differentiated by `training`.

        Parameters
        ----------
        path : str or Path
        parameters : mapping of str to array, or collection of str
            Inputs or initialisers of the file that are to be trained, with their values; names
            alone stand for initialisers with the values of the file.
        outputs : collection of str, optional
            Tensors that are needed. Nodes that they do not depend on are left out, such as
            those of predicted labels. Default: the outputs of the file.
        batch_statistics : bool, optional
            Whether every BatchNormalization uses statistics of the batch, whatever the file says.
        batch_size : int, optional
            Length of first dimensions of inputs that the file leaves open.
        dtype : {float32, float64}

        Returns
        -------
        Builder
            Its `outputs` are the names of the outputs.

        Raises
        ------
        OnnxError, FormatError, GraphError

        Notes
        -----
        Signed integers become int64, labels among them. Dropout and BatchNormalization are read
        in the mode of the file: export with ``training=TrainingMode.TRAINING`` for statistics of
        the batch. Statistics of the file are folded into the product before, if neither its
        weights nor scale and bias are to be trained. What depends on constants alone is computed.
        """
        builder = cls(Path(path).stem, dtype=dtype)
        names = [parameters] if isinstance(parameters, str) else list(parameters)
        size = None if batch_size is None else integer(batch_size, "batch_size", low=1)
        with as_graph_error(path):
            wanted = [outputs] if isinstance(outputs, str) else outputs
            nodes, inputs, constants, ends = read_nodes(
                path, dtype, names, wanted, flag(batch_statistics, "batch_statistics"), size
            )
        builder.outputs = tuple(ends)
        if not isinstance(parameters, Mapping):
            lost = [name for name in names if name not in constants]
            if lost:
                raise GraphError(
                    f"{path}: parameters: {', '.join(map(str, lost))} are no initialisers of the "
                    f"file, need some of {', '.join(sorted(constants)) or 'none'}, or values"
                )
            parameters = {name: constants[name] for name in names}
        for name, value in parameters.items():
            builder.parameter(name, value)
        for tensor in inputs:
            if tensor.name not in parameters:
                builder.input(tensor.name, tensor.shape, tensor.dtype)
        for name, value in constants.items():
            if name not in parameters:
                builder._sketch.constant(name, value)
        for node in nodes:
            builder._sketch.append(node)
        builder._fuse = True
        return builder

    def input(self, name: str, shape: Sequence[int], dtype: Any = None) -> str:
        """Add an input.

        Parameters
        ----------
        name : str
        shape : sequence of int
        dtype : dtype, optional
            Default: that of the graph. Signed integers become int64, labels among them.

        Returns
        -------
        str
            The name.
        """
        kind = self._sketch.dtype if dtype is None else known_type(dtype)
        kind = "int64" if kind in ("int8", "int16", "int32") else kind
        self._inputs.append(self._sketch.tensor(name, shape, kind))
        return name

    def parameter(self, name: str, value: Any) -> str:
        """Add a tensor that is trained.

        Parameters
        ----------
        name : str
        value : array
            Its initial values.

        Returns
        -------
        str
            The name.
        """
        array = finite_array(value, self._sketch.dtype, f"parameter {name}")
        self._parameters[self._sketch.tensor(name, array.shape, array.dtype.name)] = array
        return name

    def constant(self, name: str, value: Any) -> str:
        """Add a constant.

        Parameters
        ----------
        name : str
        value : array

        Returns
        -------
        str
            The name.
        """
        return self._sketch.constant(name, value)

    def apply(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node.

        Parameters
        ----------
        op : str
        *inputs : str
        name : str, optional
            Of the node and its first output; default: made from the op's.
        **attributes : number, string or tuple
            Those of the op in ONNX.

        Returns
        -------
        str
            Its first output.

        Raises
        ------
        GraphError
        """
        return self._sketch.add(op, inputs, 1, attributes, name)[0]

    def analog(self, x: str, tile: AnalogTile, *, lr: float, name: str) -> str:
        """Add the product of an analog tile, which learns by pulses in the backward pass.

        Parameters
        ----------
        x : str
            Shape (n_batch, n_in).
        tile : AnalogTile
            Of float32; its present weights, cells and clocks are the initial ones of the graph.
            It is not changed.
        lr : float
            Learning rate of its updates.
        name : str
            Prefix of the names of its tensors.

        Returns
        -------
        str
            Shape (n_batch, n_out).

        Raises
        ------
        ParameterError, GraphError

        Notes
        -----
        The bits are those of `AnalogTile.forward`, `backward` and `update` with the same clocks.
        Wires, passes by sign, read noise, running averages, cells made of several devices, and
        write noise are not supported.

        Examples
        --------
        >>> import rpukit as rk
        >>> b = rk.tiled.Builder("net")
        >>> tile = rk.AnalogTile((2, 3), rk.Ideal(), seed=1)
        >>> b.analog(b.input("x", (4, 3)), tile, lr=0.1, name="tile")
        'tile'
        """
        instance(tile, AnalogTile, "tile")
        check_tile(tile)
        lr, name, x = number(lr, "lr"), text(name, "name"), text(x, "x")
        learn, cells = learning(tile, lr)
        put, kept = self._sketch.constant, self._keep
        weight = kept(f"{name}.weight", _device.to_numpy(tile.get_weights()))
        clocks = {
            way: kept(f"{name}.{way}_clock", np.array([tile.clocks[way]], np.int64))
            for way in ("forward", "backward", "update")
        }
        ways: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {}
        for way, io in (
            ("forward", tile.forward_parameters),
            ("backward", tile.backward_parameters),
        ):
            attributes, spread = periphery(tile, io, way == "backward")
            extra: tuple[str, ...] = (
                () if spread is None else (put(f"{name}.{way}_noise", spread),)
            )
            ways[way] = (attributes, extra)
        planes = tuple(put(f"{name}.{key}", value) for key, value in cells.items())
        attributes, extra = ways["forward"]
        inputs = (x, weight, clocks["forward"], *extra)
        (made,) = self._sketch.add("AnalogForward", inputs, 1, attributes, name)
        self._sketch.tiles[made] = TileRecord(weight, clocks, ways, learn, planes)
        return made

    def _keep(self, name: str, value: np.ndarray) -> str:
        self._kept[self._sketch.tensor(name, value.shape, value.dtype.name)] = value
        return name

    def graph(self, *outputs: str) -> Graph:
        """Make a graph of the nodes added so far, without gradients.

        Parameters
        ----------
        *outputs : str

        Returns
        -------
        Graph
            Its inputs are the inputs and parameters that are used.

        Raises
        ------
        GraphError
        """
        need: list[Node] = []
        for output in outputs:
            text(output, "output")
            need += [node for node in self._sketch.ancestors(output) if node not in need]
        return self._made(
            need, (*self._inputs, *self._parameters, *self._kept), outputs, self.name
        )

    def training(
        self, loss: str, optimiser: Optimiser | None = None, *, fuse: bool | None = None
    ) -> Training:
        """Make the training graph of a loss, and the graph of an optimiser's step.

        Parameters
        ----------
        loss : str
            A tensor of one element.
        optimiser : SGD, MomentumSGD or Adam, optional
            Default: ``SGD()``.
        fuse : bool, optional
            Whether to fuse what keeps its bits (`rpukit.tiled.fuse`). Default: True for a graph
            that was read by `from_onnx`, else False.

        Returns
        -------
        Training

        Raises
        ------
        GraphError
            If there are fewer than two inputs, or a parameter has no gradient.

        Notes
        -----
        The gradients that a tensor gets from several readers are added in reverse order of these,
        last reader first. Gradients of mini-batches are added up, not averaged. A mini-batch has
        the inputs in their order: data, target, then others, such as masks.
        """
        known = isinstance(loss, str) and loss in self._sketch.tensors
        if not known or self._sketch.tensors[loss].size != 1:
            raise GraphError(f"loss: got {shown(loss)}, need a tensor of one element")
        optimiser = instance(optimiser, (SGD, MomentumSGD, Adam), "optimiser", SGD())
        sketch = Sketch(self._sketch.dtype)
        sketch.nodes = self._sketch.ancestors(loss)
        sketch.tiles = dict(self._sketch.tiles)
        forward = {name for node in sketch.nodes for name in (*node.inputs, *node.outputs)}
        every = self._sketch.tensors.items()
        tiles = [tile for made, tile in sketch.tiles.items() if made in forward]
        for tile in tiles:
            forward |= {*tile.clocks.values(), *tile.cells, *tile.ways["backward"][1]}
        sketch.tensors = {k: v for k, v in every if k in forward or k in self._parameters}
        sketch.constants = {k: v for k, v in self._sketch.constants.items() if k in forward}
        data = [name for name in self._inputs if name in forward]
        if len(data) < 2 or not (self._parameters or tiles):
            raise GraphError(
                f"{self.name}: need two inputs, data and target, and parameters; got {data} and "
                f"{len(self._parameters)} parameters"
            )
        found, changed = gradients(sketch, loss, list(self._parameters))
        sketch.tensor(RESET, (1,), "bool")
        pairs, ends = [], [loss]
        for name, slope in found.items():
            total = sketch.tensor(f"{name}_grad.accumulation.buffer", *self._like(name))
            node = (total, slope, RESET)
            ends += sketch.add(
                "InPlaceAccumulatorV2", node, 1, {}, f"{name}_grad.accumulation.out"
            )
            pairs.append((name, total))
        totals = tuple(total for _, total in pairs)
        homes = tuple(name.removesuffix("_updated") for name in changed)
        inputs = (*data, *self._parameters, *homes, *totals, RESET)
        ends += changed
        train = self._made(sketch.nodes, inputs, ends, self.name, sketch)
        graph, state = optimiser_graph(optimiser, sketch.tensors, pairs, f"{self.name}_optimiser")
        made = Training(
            *(train, graph, data[0], data[1], tuple(self._parameters), totals, RESET, loss),
            state=tuple(state),
            kept=homes,
            initial={**self._parameters, **state, **{name: self._kept[name] for name in homes}},
            extra=tuple(data[2:]),
        )
        wanted = self._fuse if fuse is None else flag(fuse, "fuse")
        return fused(made) if wanted else made

    def _like(self, name: str) -> tuple[tuple[int, ...], str]:
        tensor = self._sketch.tensors[name]
        return tensor.shape, tensor.dtype

    def _made(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        sketch: Sketch | None = None,
    ) -> Graph:
        sketch = sketch or self._sketch
        used = {source for node in nodes for source in node.inputs} | set(outputs)
        given = [sketch.tensors[key] for key in inputs if key in used]
        constants = {key: value for key, value in sketch.constants.items() if key in used}
        return make_graph(name, nodes, given, outputs, constants)
