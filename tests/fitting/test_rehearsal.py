"""The bootstrap's standard errors are those of fits."""

import numpy as np
from small_models import DPMeans, Parameters

from dpem.fitting.rehearsal import bootstrap

BOUNDS = {"epsilon": 0.5, "delta": 1e-6, "bounds": (-1, 1)}


def test_the_bootstrap_estimates_sampling_error_and_noise():
    model = DPMeans(**BOUNDS)
    plan = model.plan(4000, 2)
    means = model._model(model._schema(("a", "b"), {}, None))
    errors = bootstrap(
        means, plan.steps, Parameters(np.array([0.2, -0.3])), lambda state: state.theta.mean, n=4000, repeats=200
    )
    noise = np.sqrt(2) * 2 / 4000 / np.sqrt(2 * plan.steps[0].rho)
    assert np.allclose(errors.sampling, 0.25 / np.sqrt(4000), rtol=0.25)
    assert np.allclose(errors.total, np.hypot(noise, 0.25 / np.sqrt(4000)), rtol=0.25)


def test_the_sampling_error_is_scaled_to_more_rows():
    model = DPMeans(**BOUNDS)
    plan = model.plan(100_000, 2)
    means = model._model(model._schema(("a", "b"), {}, None))
    many = bootstrap(
        means, plan.steps, Parameters(np.zeros(2)), lambda state: state.theta.mean, n=100_000, repeats=200, rows=2000
    )
    assert np.allclose(many.sampling, 0.25 / np.sqrt(100_000), rtol=0.25)
