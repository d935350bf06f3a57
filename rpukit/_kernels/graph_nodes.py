"""Kernel nodes of a captured CUDA graph, and other arguments for them before a replay.

A node is found by its kernel, its launch shape and the bytes of its arguments, all of which have
to be those of a recorded launch. The driver copies arguments when they are set, so that replays
that wait on a stream are not affected.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rpukit._kernels import driver
from rpukit._kernels.arguments import CTYPES, pack
from rpukit._kernels.launch import Launched
from rpukit.errors import DeviceError, LaunchError

_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL of cuda.h


class NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@cache
def _calls() -> Any:
    """Load the driver's calls on graphs."""
    found, pointer = driver.library(), ctypes.c_void_p
    try:
        found.cuGraphGetNodes.argtypes = (pointer, pointer, pointer)
        found.cuGraphNodeGetType.argtypes = (pointer, pointer)
        found.cuGraphKernelNodeGetParams_v2.argtypes = (pointer, pointer)
        found.cuGraphExecKernelNodeSetParams_v2.argtypes = (pointer, pointer, pointer)
    except AttributeError as error:
        raise DeviceError(
            f"no arguments of graphs: {error}. They need a driver for CUDA 12 or later"
        ) from error
    return found


def kernel_nodes(graph: int) -> list[tuple[int, NodeParameters]]:
    """List the kernel nodes of a graph in the order of the capture.

    Parameters
    ----------
    graph : int
        The driver's handle, which has to stay valid as long as the result is used.

    Returns
    -------
    list of (int, NodeParameters)

    Raises
    ------
    LaunchError, DeviceError
    """
    calls, n = _calls(), ctypes.c_size_t(0)
    _need(calls.cuGraphGetNodes(graph, None, ctypes.byref(n)))
    handles = (ctypes.c_void_p * n.value)()
    _need(calls.cuGraphGetNodes(graph, handles, ctypes.byref(n)))
    found = []
    for handle in handles:
        kind = ctypes.c_int(-1)
        _need(calls.cuGraphNodeGetType(handle, ctypes.byref(kind)))
        if kind.value == _KERNEL and handle is not None:
            parameters = NodeParameters()
            _need(calls.cuGraphKernelNodeGetParams_v2(handle, ctypes.byref(parameters)))
            found.append((handle, parameters))
    return found


class Node:
    """The node of one recorded launch.

    Parameters
    ----------
    handle : int
    parameters : NodeParameters
    launched : Launched
    """

    def __init__(self, handle: int, parameters: NodeParameters, launched: Launched) -> None:
        self._handle, self._parameters = handle, parameters
        n = len(launched.parameters)
        self._addresses = (ctypes.c_void_p * n)(*_addresses(parameters, n))
        parameters.arguments = ctypes.addressof(self._addresses)

    def updater(self, words: dict[int, np.ndarray]) -> Callable[[int], None]:
        """Return a function that gives an executable graph the present contents of words.

        Parameters
        ----------
        words : dict
            From the number of an argument to an array of one element of its type.

        Returns
        -------
        callable
            Takes the driver's handle of the executable graph.
        """
        for k, word in words.items():
            self._addresses[k] = word.ctypes.data
        call, handle = _calls().cuGraphExecKernelNodeSetParams_v2, self._handle
        at = ctypes.addressof(self._parameters)

        def update(graph: int, _: Any = (self, words)) -> None:
            code = call(graph, handle, at)
            if code:
                raise LaunchError(f"the driver refused arguments of a graph with error {code}")

        return update


def word_of(one: Launched, k: int) -> np.ndarray:
    """Return an array of one element of the type of argument k of a launch, which is a number."""
    return np.zeros(1, CTYPES[one.variant._types[k][1]])


def nodes_of(graph: int, launches: Sequence[Launched]) -> list[Node] | None:
    """Find the nodes of recorded launches in a graph.

    Parameters
    ----------
    graph : int
    launches : sequence of Launched
        In the order of the capture.

    Returns
    -------
    list of Node, or None
        None unless each launch has a node with its kernel, shape and arguments, in order.

    Raises
    ------
    LaunchError, DeviceError
    """
    wanted = {_function_of(one) for one in launches}
    found = [node for node in kernel_nodes(graph) if _handle(node[1]) in wanted]
    launches = [one for one in launches if min(one.grid) > 0]
    if len(found) != len(launches):
        return None
    pairs = list(zip(found, launches, strict=True))
    if not all(_agrees(parameters, one) for (_, parameters), one in pairs):
        return None
    return [Node(handle, parameters, one) for (handle, parameters), one in pairs]


def _agrees(parameters: NodeParameters, one: Launched) -> bool:
    shapes = [tuple((*shape, 1, 1)[:3]) for shape in (one.grid, one.block)]
    if [tuple(parameters.grid), tuple(parameters.block)] != shapes:
        return False
    if _handle(parameters) != _function_of(one):
        return False
    ready = one.variant.checked(one.args)
    addresses = _addresses(parameters, len(ready))
    packed = [pack(a).tobytes() for a in ready]
    held = zip(addresses, packed, strict=True)
    return all(ctypes.string_at(at, len(word)) == word for at, word in held)


def _function_of(one: Launched) -> int:
    """Return the driver's handle of the function of a launch on a GPU."""
    return int(one.variant._functions[one.device or 0].ptr)


def _handle(parameters: NodeParameters) -> int:
    """Return the function of a node, or the kernel of a library that it was launched by."""
    return int(parameters.function or parameters.kernel or 0)


def _addresses(parameters: NodeParameters, n: int) -> list[int]:
    return list((ctypes.c_void_p * n).from_address(parameters.arguments))


def _need(code: int) -> None:
    if code:
        raise LaunchError(f"the driver refused to describe a graph, with error {code}")
