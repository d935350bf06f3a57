"""Resistive wires: nodal analysis against circuits solved by hand, and the fast method."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.crossbar import Wires, compare_wires, effective_conductance, effective_weights

RNG = np.random.default_rng(2)


def by_dense_equations(g, wires):
    """Kirchhoff's law at every node, written again with dense matrices and tiny resistances."""
    n_out, n_in = g.shape
    least = 1e-9

    def top(i, j):
        return i * n_in + j

    def bottom(i, j):
        return n_out * n_in + i * n_in + j

    n = 2 * n_out * n_in
    matrix, right = np.zeros((n, n)), np.zeros((n, n_in))

    def resistor(a, b, value):
        for p, q in ((a, b), (b, a)):
            matrix[p, p] += value
            matrix[p, q] -= value

    for i in range(n_out):
        for j in range(n_in):
            resistor(top(i, j), bottom(i, j), g[i, j])
            if i + 1 < n_out:
                resistor(top(i, j), top(i + 1, j), 1 / max(wires.r_in, least))
            if j + 1 < n_in:
                resistor(bottom(i, j), bottom(i, j + 1), 1 / max(wires.r_out, least))
    for j in range(n_in):
        conductance = 1 / max(wires.r_driver, least)
        matrix[top(0, j), top(0, j)] += conductance
        right[top(0, j), j] = conductance
    for i in range(n_out):
        matrix[bottom(i, 0), bottom(i, 0)] += 1 / max(wires.r_sense, least)
    v = np.linalg.solve(matrix, right)
    return np.array(
        [
            sum(g[i, j] * (v[top(i, j)] - v[bottom(i, j)]) for j in range(n_in))
            for i in range(n_out)
        ]
    )


@pytest.mark.parametrize(
    "ohms",
    [(2, 0, 0, 0), (0, 3, 0, 0), (2, 3, 0, 0), (2, 3, 10, 20), (0, 0, 10, 20), (1, 0, 0, 5)],
)
def test_against_dense_equations(ohms):
    wires = Wires(**dict(zip(("r_in", "r_out", "r_driver", "r_sense"), ohms, strict=True)))
    g = RNG.uniform(0, 1e-2, (4, 5))
    g[1, 2] = 0
    found = effective_conductance(g, wires)
    assert found == pytest.approx(by_dense_equations(g, wires), rel=2e-5, abs=1e-9)


def test_ideal_wires_change_nothing():
    g = RNG.uniform(0, 1, (3, 4))
    assert np.array_equal(effective_conductance(g, Wires()), g)


def test_one_output_line_is_a_ladder():
    """From its far end: each device in series with its source, then a segment of wire."""
    g, r = RNG.uniform(0.01, 0.1, 7), 0.8
    current, conductance = 0.0, 0.0  # Norton's equivalent of what lies beyond
    for j in reversed(range(7)):
        conductance, current = conductance + g[j], current + g[j]  # 1 V at every source
        if j:
            factor = 1 / (1 + r * conductance)
            conductance, current = conductance * factor, current * factor
    found = effective_conductance(g[None], Wires(r_out=r))
    assert found.sum() == pytest.approx(current)


def test_the_network_is_reciprocal():
    """Driven and sensed sides may change places."""
    g = RNG.uniform(0, 1e-2, (4, 6))
    one = effective_conductance(g, Wires(r_in=1, r_out=2, r_driver=3, r_sense=4))
    other = effective_conductance(g.T, Wires(r_in=2, r_out=1, r_driver=4, r_sense=3))
    assert one == pytest.approx(other.T)


def test_lines_without_devices():
    g = np.zeros((3, 4))
    wires = Wires(r_in=1, r_out=1, r_driver=1, r_sense=1)
    assert not effective_conductance(g, wires).any()
    g[2, 3] = 1.0
    found = effective_conductance(g, wires)
    assert found[2, 3] == pytest.approx(1 / (1 + (1 + 2) + (1 + 3)))
    assert np.count_nonzero(found > 1e-15) == 1


def test_pairs_of_devices():
    w = RNG.uniform(-1, 1, (3, 8))
    assert effective_weights(w, Wires(), g_max=1e-5) == pytest.approx(w)
    lossy = effective_weights(w, Wires(r_out=10.0), g_max=1e-4)
    assert (np.sign(lossy) == np.sign(w)).all() and (abs(lossy) < abs(w))[:, 1:].all()


def test_the_fast_method_holds_for_equal_inputs():
    """All inputs 1, weights of one sign: the loss is that of nodal analysis to first order."""
    w = RNG.uniform(0, 1, (4, 64))
    for r in (0.1, 1.0):
        found = compare_wires(w, np.ones((1, 64)), Wires(r_out=r), g_max=20e-6)
        assert found.error < 0.08 * found.loss
    assert 0.01 < found.loss < 0.05


def test_the_fast_method_underestimates_unequal_inputs():
    """It takes the drop of the wire as a share of each input's own voltage (docs)."""
    w, x = RNG.uniform(-1, 1, (8, 64)), RNG.uniform(0, 1, (20, 64))
    found = compare_wires(w, x, Wires(r_out=1.0), g_max=20e-6)
    assert 0.4 < found.fast_loss / found.loss < 0.8
    assert found.error < found.loss


def test_no_resistance_is_the_ideal_product():
    w, x = RNG.uniform(-1, 1, (3, 5)), RNG.uniform(-1, 1, (2, 5))
    found = compare_wires(w, x, Wires(), g_max=1e-5)
    assert found.exact == pytest.approx(found.ideal) and found.loss < 1e-12
    assert found.error < 1e-6


@pytest.mark.parametrize(
    ("g", "error"),
    [
        (np.ones(3), rk.errors.ShapeError),
        (-np.ones((2, 2)), rk.errors.ParameterError),
        (np.full((2, 2), np.nan), rk.errors.NonFiniteError),
    ],
)
def test_errors(g, error):
    with pytest.raises(error, match="conductance"):
        effective_conductance(g, Wires())


def test_resistances_are_checked():
    with pytest.raises(rk.errors.ParameterError, match="r_out"):
        Wires(r_out=-1.0)
    with pytest.raises(rk.errors.ParameterError, match="wires"):
        effective_conductance(np.ones((2, 2)), 1.0)
    with pytest.raises(rk.errors.ShapeError, match="x: got shape"):
        compare_wires(np.ones((2, 2)), np.ones((1, 3)), Wires(), g_max=1.0)
