"""The CUDA kernels of circuits against their mirrors, bit for bit; errors of devices.

One run of everything that a circuit does launches leaf_table, leaf_forward, product_forward,
sum_forward, sum_lift, sum_backward, product_backward, flow_steps, sum_flow, leaf_flow,
sum_maximise, leaf_maximise, leaf_posterior, largest_forward, choose_down, mark_products and
leaf_choose. What the mirrors compute is compared with independent formulas in the other files.
"""

import numpy as np
import pytest
from golden_cases import CASES
from golden_circuits import CIRCUITS, of

import rpukit as rk
from rpukit import circuits
from rpukit.circuits import ops
from rpukit.testing import assert_same_bits, on_cpu


@pytest.mark.parametrize("name", CIRCUITS)
def test_any_order_of_threads_gives_the_bits_of_the_mirrors(name, order):
    assert f"float32-{name}" in {case.name for case in CASES["sum_flow"]}
    expected = of(name, "float32", "cpu", 0)
    with on_cpu(order):
        got = of(name, "float32", "cpu", 10 + order)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


def uneven():
    """States in two parts that nothing joins; symbols 0 and 1 exclude one each."""
    odd = np.arange(70) % 2
    transition = np.where(odd[:, None] == odd, 0.75 ** np.arange(70), 0)
    emission = np.where(np.arange(4) % 2 == odd[:, None], 2.0**-100, 0.5)
    emission[odd == 0, 0] = 2.0**-120
    pc = rk.Circuit(circuits.hmm(3, 70, 4, transition=transition / transition.sum(1)[:, None]))
    pc._parameters.rows.parameters[:] = emission.reshape(-1)
    pc._parameters.refresh_all()
    x = np.arange(51).reshape(17, 3) // 2 % 4
    x[2] = [0, 1, 1]
    return pc, x


@pytest.mark.parametrize("n", [1, 3, 17])
def test_any_batch_gives_the_bits_of_the_mirrors(n):
    """Weights with zeros and values far apart: sums that underflow, steps that are wide."""
    states = []
    for emulated in (False, True):
        pc, x = uneven()
        with on_cpu() if emulated else np.errstate():
            pc.accumulate(x[:n])
            pc.accumulate(x[2:3])
            states.append([pc.log_likelihood(x[:n]), *pc.state()["arrays"].values()])
        assert np.isfinite(states[-1][0]).all()
    for a, b in zip(*states, strict=True):
        assert_same_bits(a, b)


def test_a_wide_step_is_there():
    """The test above would not see the second way of `sum_flow` without one."""
    pc, x = uneven()
    weights = np.ones((17, 1), np.float32)
    run = pc._both_ways(pc._encoded(x, None), weights, pc._way(None))
    wide = ops.flow_steps(pc._parameters.uses, run.lift, run.elements)[2]
    assert wide.any()
    assert not wide.all()


@pytest.mark.gpu
def test_arrays_have_to_be_on_the_device():
    pc = rk.Circuit(circuits.mixture(3, 2, circuits.Bernoulli()), device="gpu")
    with pytest.raises(rk.errors.DeviceError, match="x is on cpu"):
        pc.log_likelihood(np.zeros((2, 3), int))
    assert pc.to("cpu").log_likelihood([[0, 1, 0]]).shape == (1,)
    assert_same_bits(pc.log_likelihood([[0, 1, 0]]), pc.to("cpu").log_likelihood([[0, 1, 0]]))


def test_a_copy_on_a_device_goes_on_alike():
    pc = rk.Circuit(circuits.hmm(4, 3, 5), seed=2)
    x = pc.sample(9)
    pc.accumulate(x)
    other = pc.to("cpu")
    assert other.device == "cpu"
    for one in (pc, other):
        one.em_step()
    assert_same_bits(other.log_likelihood(x), pc.log_likelihood(x))
    assert_same_bits(other.sample(3), pc.sample(3))
