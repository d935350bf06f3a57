"""Propagation rules: power sums, max-product, tempered flows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rpukit import _device
from rpukit._checks import TINY, Checked, Kind, Real
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.layout import ProductLayer, SumLayer
from rpukit.circuits.compiled.tables import node_tiles
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.parameters import Parameters
from rpukit.circuits.queries.passes import Pass, Propagation, run_down
from rpukit.elementwise import log, power
from rpukit.errors import ParameterError
from rpukit.random import Op

__all__ = ["FIRST_OF_BEST", "MaxProduct", "Rule", "largest_down"]

Array = Any

_LARGEST_DOWN = Kernel("largest_down")
_MOST_ROWS = 65535  # of a grid along y
FIRST_OF_BEST = (True, 0, np.uint32(0), np.uint32(0), int(Op.CIRCUIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Checked):
    """Propagation rule of sums, for likelihoods, flows and EM of a `Circuit`.

    Parameters
    ----------
    exponent : float, positive, inf included
        A sum has the value (sum_c (theta_c p_c)^a)^(1/a): 1 as usual, inf the largest term
        alone, by which counts become those of the best way through the circuit (hard EM).
    temperature : float, positive
        Counts of weights follow (theta_c p_c)^(1/T): above 1 they are more even. Values are as
        usual; needs exponent 1.
    temper_elements : bool
        Flows of nodes too.

    Notes
    -----
    Of equals the largest term is the first. An unknown variable has the factor 1, with any rule.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> coin = rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2, parameters=[0.5, 0.25])
    >>> pc = rk.Circuit(rk.circuits.sum(coin, n_nodes=1, parameters=[[0.5, 0.5]]))
    >>> [round(float(np.exp(pc.log_likelihood([[1]], rule=rk.circuits.Rule(exponent=a))[0])), 3)
    ...  for a in (1.0, 2.0, np.inf)]
    [0.375, 0.28, 0.25]
    """

    exponent: float = 1.0
    temperature: float = 1.0
    temper_elements: bool = False

    KINDS: ClassVar[dict[str, Kind]] = {"exponent": Real(infinite=True, least=TINY)}

    def _check(self) -> None:
        for name in ("exponent", "temperature"):
            self._need(getattr(self, name) > 0, name, "a positive number")
        if self.temperature != 1 and self.exponent != 1:
            raise ParameterError(
                f"temperature: got {self.temperature!r} with exponent {self.exponent!r}; a "
                "temperature needs exponent 1"
            )

    def _propagation(self, parameters: Parameters) -> Propagation:
        if self.exponent == 1 and self.temperature == 1:
            return Propagation(parameters)
        parameters = parameters.in_float32()
        if self.exponent == np.inf:
            return MaxProduct(parameters)
        if self.exponent != 1:
            return _PowerSums(parameters, float(self.exponent))
        return _Tempered(parameters, float(self.temperature), self.temper_elements)


class _PowerSums(Propagation):
    """Power sums: with all values times a, sums of theta^a exp(a e) are computed as usual."""

    def __init__(self, parameters: Parameters, exponent: float) -> None:
        own = copy(parameters)
        own.theta = power(parameters.theta, exponent)
        Propagation.__init__(self, own)
        self.exponent = exponent
        self.factor = own.theta.dtype.type(exponent)

    def up(self, run: Pass, *, keep: bool = False) -> Pass:
        run.values[:, : self.parameters.rows.kinds.size] *= self.factor
        return Propagation.up(self, run, keep=keep)

    def outputs(self, values: Array) -> Array:
        return values / self.factor


class MaxProduct(Propagation):
    """Max-product: the largest term of each sum alone."""

    def __init__(self, parameters: Parameters) -> None:
        Propagation.__init__(self, parameters)
        self.log_theta = log(parameters.theta)

    def up(self, run: Pass, *, keep: bool = False) -> Pass:
        run.hold_elements(self.parameters, keep=keep)
        for layer in self.parameters.layers:
            if isinstance(layer, ProductLayer):
                ops.product_forward(layer, run.values, run.values)
                continue
            elements = run.of_layer(layer)
            ops.product_forward(layer.elements, run.values, elements)
            ops.largest_forward(layer, self.log_theta, elements, run.values)
        return run

    def down(self, run: Pass, root_flows: Array) -> Pass:
        roots, xp = self.parameters.root_rows, _device.namespace(run.values)
        possible = run.values[:, roots] > -np.inf
        from_roots = xp.where(possible, root_flows, root_flows.dtype.type(0))
        if roots.size > 1 and int((from_roots > 0).sum(axis=1).max()) > 1:
            raise ParameterError(
                f"rule: with exponent inf a sample's flow needs to come from one of the "
                f"{roots.size} roots: give weights that are 0 at all others"
            )
        flow, none = from_roots.max(axis=1), root_flows.dtype.type(0)
        log_flow = log(flow)
        chosen = xp.zeros(run.values.shape, bool)
        chosen[:, roots] = from_roots > 0
        run.lift = xp.full_like(run.values, -np.inf)
        for layer in reversed(self.parameters.layers):
            if isinstance(layer, ProductLayer):
                ops.mark_products(layer, chosen, log_flow.dtype)
                continue
            elements = run.of_layer(layer)
            hard = xp.full_like(elements, -np.inf)
            largest_down(layer, self.log_theta, log_flow, elements, hard, run.lift, chosen)
            elements[:] = hard
        run.flows = xp.where(chosen, flow[:, None], none)
        return run


def largest_down(
    layer: SumLayer,
    log_theta: Array,
    log_flow: Array,
    elements: Array,
    hard: Array,
    lift: Array,
    chosen: Array,
) -> None:
    """Go down to the first largest child of each chosen sum.

    Its edge counts the flow: ``hard`` becomes 0 there, ``lift`` log flow - log theta.
    """
    lists, inside = (
        (layer.list_first, layer.list_elements),
        (layer.elements.first, layer.elements.rows),
    )
    groups = (layer.group_list, layer.group_row, layer.group_size, layer.group_theta)
    arrays = (log_theta, log_flow, elements, hard, lift)
    n, dtype = len(lift), log_theta.dtype
    if _device.takes_kernels(lift):
        tiles = node_tiles(layer, 32)
        sizes, grid = (n, elements.shape[1], lift.shape[1]), (len(tiles[0]), min(n, _MOST_ROWS))
        args = (*sizes, *lists, *groups, *tiles, *inside, *arrays, chosen.view(np.uint8))
        _LARGEST_DOWN.launch(grid, (32,), args, macros={"REAL": real(dtype)})
        return
    go = mirror("rpukit.circuits._mirror.queries", dtype).largest_down
    run_rows(go, n, *lists, *groups, *inside, *arrays, chosen, grain=work_grain(layer.n_element))


class _Tempered(Propagation):
    """Tempered flows: values as usual, counts by sums of theta^(1/T) exp(e / T)."""

    apart = True

    def __init__(self, parameters: Parameters, temperature: float, elements: bool) -> None:
        Propagation.__init__(self, parameters)
        self.exponent, self.elements = 1 / temperature, elements
        self.theta = power(parameters.theta, self.exponent)

    def down(self, run: Pass, root_flows: Array) -> Pass:
        xp = _device.namespace(run.values)
        even = copy(run)  # values of the tempered sums
        even.values, even.elements = (
            run.values.copy(),
            run.elements * self.theta.dtype.type(self.exponent),
        )
        for layer in self.parameters.layers:
            if isinstance(layer, SumLayer):
                ops.sum_forward(layer, self.theta, even.of_layer(layer), even.values)
        if self.elements:
            own = copy(self.parameters)
            own.theta = self.theta
            even = run_down(own, even, root_flows)
            run.flows, run.lift = even.flows, even.lift
        else:
            run_down(self.parameters, run, root_flows)
            run.lift = xp.empty_like(run.values)
            for layer in self.parameters.layers:
                if isinstance(layer, SumLayer):
                    rows = (layer.first_row, layer.end_row)
                    ops.sum_lift(even.values, run.flows, run.lift, rows)
        run.elements = even.elements
        return run
