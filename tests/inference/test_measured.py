"""A model from measurements finds again what made them."""

import numpy as np
import pytest

from rpukit import errors, inference


def measured(device, n=8000, n_time=16):
    target = np.linspace(0, device.g_max, n, dtype=np.float32)
    done = device.program(target, seed=1)
    times = np.geomspace(1, 1e7, n_time)
    return target, done.conductance, times, [device.read(done, t, seed=1) for t in times]


def test_finds_phase_change_memory_again():
    device = inference.PCMLike()
    model = inference.fit_model(*measured(device), g_max=25.0)
    x = np.linspace(0.25, 0.95, 9)  # below, the curves bend between two nodes
    # 8,000 devices, 8 nodes: a thousand each, so 3 standard errors of a deviation are 7 %.
    np.testing.assert_allclose(model.programming(x), device.programming(x), rtol=0.07)
    np.testing.assert_allclose(model.drift_mean(x), device.drift_mean(x), atol=0.002)
    np.testing.assert_allclose(model.drift_std(x), device.drift_std(x), atol=0.003)
    np.testing.assert_allclose(model.reading(1.0)(x), device.reading(1.0)(x), rtol=0.1)


def test_it_serves_a_tile():
    model = inference.fit_model(*measured(inference.Hermes(), n=3000), g_max=20.7, degree=3)
    w = np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12)
    tile = inference.InferenceTile((5, 12), noise=model, seed=1).set_weights(w)
    late = np.asarray(tile.program().drift_to(1e6))
    assert 0.5 < np.abs(late).mean() / np.abs(w).mean() < 0.95
    assert inference.InferenceTile.from_state(tile.state()).noise == model


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (lambda a: a.update(traces=a["traces"][:3]), errors.ShapeError, "measurements"),
        (lambda a: a.update(programmed=a["programmed"] * np.nan), errors.NonFiniteError, "NaN"),
        (lambda a: a.update(g_max=10.0), errors.ParameterError, "target"),
        (lambda a: a.update(times=a["times"] * 0 + 1), errors.ParameterError, "times"),
        (lambda a: a.update(n_node=1), errors.ParameterError, "n_node"),
        (lambda a: a.update(degree=6), errors.ParameterError, "degree"),
        (lambda a: a.update(n_node=300), errors.ParameterError, "devices"),
        (lambda a: a.update(target=a["target"] * 0 + 5), errors.ParameterError, "too few"),
    ],
)
def test_bad_measurements(spoil, kind, words):
    names = ("target", "programmed", "times", "traces")
    options = dict(zip(names, measured(inference.PCMLike(), n=500, n_time=6), strict=True))
    options["traces"] = np.array(options["traces"])
    options["g_max"] = 25.0
    spoil(options)
    with pytest.raises(kind, match=words):
        inference.fit_model(**options)
