"""Memory that runs out at each allocation of a call: as before, complete, or known to be cut."""

import pytest

from tools import fuzz_memory


@pytest.mark.parametrize("name", ["tile", "product"])
def test_each_allocation_on_a_cpu(name):
    counts, faults = fuzz_memory.trials(name, "cpu", 0, most=4)
    assert not faults
    assert counts["as before"] + counts["refused"] > 2


@pytest.mark.gpu
@pytest.mark.parametrize("warm", [0, fuzz_memory.WARM])
@pytest.mark.parametrize("name", fuzz_memory.OBJECTS)
def test_each_allocation_on_a_gpu(name, warm):
    counts, faults = fuzz_memory.trials(name, "gpu", warm, most=20)
    assert not faults
    assert counts.total()


@pytest.mark.gpu
def test_each_allocation_of_a_product_on_a_gpu():
    assert fuzz_memory.det_gemm("gpu") > 0
