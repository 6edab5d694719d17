"""Rehearsals are fits to simulated rows: sums without compiled loops, the same noise for every plan."""

import numpy as np
import pytest

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.planning.rehearsal import Problem, Rehearsal
from dpem.paper.planning.settings import MARGIN, SEED, Comparison, Pipeline
from dpem.paper.planning.simulated_rows import SameNoise, SimulatedRows
from dpem.paper.queries import Clip
from dpem.privacy import SeededNoise
from dpem.tables import ArraySource

MODELS = [SymmetricMixture(0.5), SymmetricRegression(0.6), MissingRegression(0.7)]
SUPPORT = np.array([0, 2, 5])


def rows(model):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((700, 6)), None
    if not isinstance(model, SymmetricMixture):
        y = rng.standard_normal(700)
    if isinstance(model, MissingRegression):
        X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def queries(model):
    beta = np.zeros(6)
    beta[SUPPORT] = 0.4, -0.3, 0.2
    for start in (beta, np.zeros(6)):
        yield model.gradient(start, Clip(0.8, residual=0.5, bracket=0.3))
        yield model.on_support(start, SUPPORT, 0.3)
        yield model.on_support(start, SUPPORT, 50.0)
    if not isinstance(model, MissingRegression):
        yield model.screening(1.0, 3)
        yield model.moments(SUPPORT, 1.2, 1.0)
        yield model.moments(SUPPORT[:2], 1.2, 1.0)


@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 1e-10), (np.float32, 1e-5)])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_sums_are_those_of_the_engines(model, dtype, near):
    simulated, real = SimulatedRows(*rows(model), dtype), ArraySource(*rows(model))
    for _ in range(2):  # the second time some answers are remembered
        for query in queries(model):
            np.testing.assert_allclose(simulated.total(query), real.total(query), rtol=near, atol=700 * near)


def test_noise_is_the_first_that_a_seed_gives_and_stays():
    v = np.arange(30.0)
    same = SameNoise(5)
    for _ in range(2):
        assert np.array_equal(same.gaussian(v, 2.0, 1.0, 0.1), SeededNoise(5).gaussian(v, 2.0, 1.0, 0.1))
        assert np.array_equal(same.top_k(v, 4, 1.0, 0.1), SeededNoise(5).top_k(v, 4, 1.0, 0.1))


def test_rows_are_in_float32_only_where_that_is_fine():
    def error(model, signal):
        pipeline = Pipeline(Problem(model, 2000, 20, 3, signal))
        return pipeline.problem.dtype, Rehearsal(pipeline.problem, 4).error(pipeline.steps(pipeline.first(), 0.1))

    dtype, found = error(SymmetricMixture(0.5), 1.0)
    assert dtype is np.float32
    for scale in (1e-30, 1e30):
        dtype, small = error(SymmetricMixture(0.5 * scale), scale)
        assert dtype is np.float64
        assert small / scale == pytest.approx(found, rel=1e-4)
    assert error(SymmetricMixture(0.001), 1.0)[0] is np.float64


def test_a_tie_changes_nothing():
    """The choice between two equal plans must not depend on the last bit of a sum."""
    pipeline = Pipeline(Problem(SymmetricMixture(0.5), 2000, 20, 3, 1.0))
    comparison = Comparison(pipeline, MARGIN * 0.1, pipeline.first(), 2, SEED)
    assert not comparison.improves(pipeline.first())
    comparison.best *= 1 + 1e-12
    assert not comparison.improves(pipeline.first())
    comparison.best *= 1.01
    assert comparison.improves(pipeline.first())
