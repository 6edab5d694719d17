"""Choice of columns in logistic and Poisson regression: sensitivity, which columns are kept, and what is reported."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpem
from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import compare, excess_cost, in_memory
from dpem.audit.tape import record
from dpem.fitting.selection import MeanResidual, ThresholdScores
from dpem.models._glm.families import Bernoulli, Poisson
from dpem.models._glm.queries import Predictor
from dpem.models._glm.selection import FamilyResiduals
from dpem.report import render
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore:expect little")

RIGHT, BETA = [0, 5, 20], np.array([0.6, -0.8, 0.4])


def simulate(kind, n, seed, d=50):
    """Three of the columns matter, one of them has two values; a fourth is correlated with the first."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[:, 10], X[:, 5] = 0.6 * X[:, 0] + 0.8 * X[:, 10], rng.random(n) < 0.3
    eta = X[:, RIGHT] @ BETA
    if kind == "poisson":
        return X, rng.poisson(np.exp(0.5 + 0.5 * eta)).astype(float)
    return X, (rng.random(n) < 1 / (1 + np.exp(0.5 - eta))).astype(float)


def estimator(kind, **more):
    settings = {"sparsity": 3, "epsilon": 1.0, "delta": 1e-6, "bounds": (-6, 6), "random_state": 0} | more
    if kind == "poisson":
        return dpem.DPPoissonRegression(**{"y_bounds": (0, 60)} | settings)
    return dpem.DPLogisticRegression(**settings)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_the_right_columns_of_fifty_are_kept(kind):
    truth = BETA if kind == "logistic" else 0.5 * BETA
    for seed in range(3):
        model = estimator(kind, random_state=seed).fit(*simulate(kind, 20_000, seed))
        assert model.support_.tolist() == RIGHT
        assert (np.abs(model.coef_[RIGHT] - truth) < 4 * model.standard_errors_[1:]).all()
        assert np.count_nonzero(model.coef_) == 3
        assert list(model.summary().index) == ["intercept", "x0", "x5", "x20"]


def test_without_privacy_it_is_maximum_likelihood_on_the_best_columns():
    X, y = simulate("logistic", 4000, 7, d=25)
    model = estimator("logistic", epsilon=math.inf, random_state=None).fit(X, y)
    assert model.support_.tolist() == RIGHT
    reference = sm.Logit(y, sm.add_constant(X[:, RIGHT])).fit(disp=0)
    # two more columns were fitted and their coefficients set to 0, which is maximum likelihood up to their size
    assert np.append(model.intercept_, model.coef_[RIGHT]) == pytest.approx(reference.params, abs=0.01)
    assert model.standard_errors_ == pytest.approx(reference.bse, rel=0.02)


def test_an_exposure_is_always_among_the_columns(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((8000, 12))
    years = rng.uniform(0.5, 5.0, 8000)
    y = rng.poisson(years * np.exp(0.2 + 0.6 * X[:, 4]))
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)]).assign(years=years)
    bounds = {**{f"c{j}": (-6, 6) for j in range(12)}, "years": (0.4, 6)}
    model = estimator("poisson", sparsity=1, bounds=bounds, y_bounds=(0, 100), exposure="years").fit(frame, y)
    assert list(model.summary().index) == ["intercept", "c4"]
    assert model.coef_[4] == pytest.approx(0.6, abs=5 * model.standard_errors_[1])
    mean = years * np.exp(model.intercept_ + model.coef_[4] * X[:, 4])
    assert model.predict(frame) == pytest.approx(mean)
    assert model.get_prediction(frame).predicted_mean == pytest.approx(mean)
    dpem.save_model(model, tmp_path / "model.json")
    again = dpem.load_model(tmp_path / "model.json")
    assert again.predict(frame) == pytest.approx(mean)
    assert again.summary().equals(model.summary())
    assert "c4" in render(again)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(30.0, 30.0)])
def test_the_sensitivity_of_choices_is_reached_and_never_exceeded(family):
    schema = Schema.of(["a", "b", "c"], dict.fromkeys("abc", (-1.0, 1.0)), {})
    source = FamilyResiduals(family, Predictor(np.array([0.3, 1.5])), np.array([1]))
    rng = np.random.default_rng(2)
    rows = np.vstack([rng.uniform(-1, 1, (40, 3)), np.ones(3), -np.ones(3), [np.nan, 0, 0], [0, np.nan, 0]])
    pairs = [(row[None], np.array([u])) for row in rows for u in (-1 / 3, 1 / 3, 1.0, -1.0, np.nan)]
    mean = MeanResidual(schema, source)
    each = np.array([mean.contributions(numpy_api, *pair) for pair in pairs])
    worst = max(np.linalg.norm(each - row, axis=1).max() for row in each)
    assert 1.5 < worst <= mean.bound.l2
    scores = ThresholdScores(schema, source, mean=0.4, without=np.array([1]))
    folded = np.array([scores.contributions(numpy_api, *pair) for pair in pairs])
    others = np.array([scores.folded(one) for one in folded])
    assert others.shape == (len(pairs), 2)
    moved = max(
        np.abs(scores.folded(rest + one) - scores.folded(rest + other)).max()
        for rest in (folded[:40].sum(axis=0), folded[100:].sum(axis=0))
        for one in folded[::7]
        for other in folded[::11]
    )
    assert 0.5 < moved <= scores.bound.linf


PRICE = {"epsilon": 4.0, "delta": 1e-4}
ODD = ("outlier with both signs", "the largest numbers", "nothing observed, far response", "not a number", "infinite")


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_an_outlier_changes_no_query_and_no_message(kind):
    X, y = simulate(kind, 200, 5, d=22)
    rows = Table("as drawn", X, y)
    model = estimator(kind, **PRICE, bounds=(-4, 4), random_state=None)
    first = record(model, *in_memory(rows))
    assert "refused" not in first.outcome
    assert list(excess_cost(first, **PRICE)) == []
    for other in (table for table in neighbours(rows, np.ones(22), missing=True, broken=True) if table.name in ODD):
        assert compare(first, record(model, *in_memory(other), frozen=first)).faults == [], other.name


def test_a_plan_states_the_probability_that_a_column_is_missed():
    few, many = (
        dpem.plan("logistic-regression", n=n, d=50, epsilon=1.0, delta=1e-6, sparsity=3) for n in (500, 20_000)
    )
    assert few.prediction.failure > 0.5
    assert not few.feasible
    assert many.feasible
    assert many.prediction.failure < 1e-6
    assert math.fsum(step.rho for step in many.steps) == pytest.approx(many.price.rho)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"sparsity": 0}, "sparsity"), ({"weights": "x1", "max_weight": 2.0}, "the choice of columns does not use them")],
)
def test_wrong_arguments_are_refused_by_name(wrong, words):
    X, y = simulate("logistic", 100, 7, d=21)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(21)])
    with pytest.raises(ValueError, match=words):
        estimator("logistic", **wrong).fit(frame, y)
