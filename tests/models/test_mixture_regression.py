"""Mixtures of regressions: EM without noise, fits of all kinds of rows, plans and diagnostics."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import Verdict, compare
from dpem.audit.tape import record
from dpem.fitting.diagnostics import FitWarning
from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.step import run_steps
from dpem.models.mixture_regression import cells, start, steps
from dpem.models.mixture_regression import model as mixture_regression
from dpem.models.mixture_regression.estimator import DPMixtureRegression
from dpem.models.mixture_regression.scores import Estimate
from dpem.models.mixture_regression.tuning import TUNING
from dpem.privacy import Account, Curator, SeededNoise
from dpem.tables import ArraySource

ARGUMENTS = {"epsilon": 1.0, "delta": 1e-6, "y_bounds": (-40, 60)}
COEF, INTERCEPT, SIGMA = np.array([[1.0, -2.0, 0.5], [-1.5, 1.0, 0.5]]), np.array([1.0, 4.0]), np.array([0.8, 1.1])


def people(n, seed=0, steep=0.4):
    """Correlated columns, one of them skewed, one of two values; two components, the first for most rows."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3)) @ np.linalg.cholesky(0.5 + 0.5 * np.eye(3)).T
    x = np.column_stack([z[:, 0], np.exp(0.5 * z[:, 1]), z[:, 2] > 0.2]).astype(float)
    k = (rng.uniform(size=n) < steep).astype(int)
    return x, INTERCEPT[k] + np.sum(COEF[k] * x, axis=1) + SIGMA[k] * rng.standard_normal(n), k


def likelihood(X, y, coef, intercept, sigma, weights):
    e = (y[:, None] - intercept - X @ coef.T) / sigma
    return np.log(weights) - np.log(sigma) - 0.5 * e**2 - 0.5 * math.log(2 * math.pi)


def plain_em(X, y, coef, intercept, sigma, weights, *, with_ones=True, rounds=1500):
    """Textbook EM, nothing shared with the package."""
    ones = np.column_stack([np.ones(len(y)), X]) if with_ones else X
    for _ in range(rounds):
        joint = likelihood(X, y, coef, intercept, sigma, weights)
        r = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
        fits = [np.linalg.solve((ones * r[:, [k]]).T @ ones, (ones * r[:, [k]]).T @ y) for k in range(len(weights))]
        sigma = np.array([np.sqrt(r[:, k] @ (y - ones @ fits[k]) ** 2 / r[:, k].sum()) for k in range(len(weights))])
        intercept = np.array([fit[0] if with_ones else 0.0 for fit in fits])
        coef, weights = np.array([fit[1 if with_ones else 0 :] for fit in fits]), r.mean(axis=0)
    return coef, intercept, sigma, weights


# --- without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_intercept", [True, False])
def test_without_noise_the_steps_end_where_em_ends_from_the_same_start(with_intercept):
    X, y, _ = people(1500)
    y = y if with_intercept else y - INTERCEPT.mean()
    estimator = DPMixtureRegression(
        fit_intercept=with_intercept, epsilon=math.inf, delta=0.5, bounds=(-15, 15), y_bounds=(-40, 60), check=False
    )
    schema = estimator._schema(["a", "b", "c"], {}, None)
    model = estimator._model(schema)
    asked = model.steps(Sizes(len(y), math.inf, 0.5, math.inf, 1, False))
    curator = Curator(ArraySource(X, y), Account(math.inf, 0.5), SeededNoise(0))
    state = run_steps(curator, model, asked[:5], model.start())
    nothing = np.zeros((state.fit.family.count, state.fit.family.count))
    at_start = replace(state, estimate=Estimate(state.starts[0], nothing))
    before = estimator._attributes(model.published(at_start, len(y)), schema)
    after = estimator._attributes(run_steps(curator, model, asked[5:], state).theta, schema)
    names = ("coef_", "intercept_", "sigma_", "weights_")
    optimum = plain_em(X, y, *(before[name] for name in names), with_ones=with_intercept)
    order = np.argsort(-optimum[-1])
    assert not np.allclose(before["coef_"], after["coef_"], atol=1e-3)
    for name, found in zip(names, optimum, strict=True):
        assert np.allclose(after[name], found[order], atol=1e-6), name


def test_without_noise_it_is_the_best_of_several_starts():
    X, y, _ = people(1500, seed=2)
    model = DPMixtureRegression(2, epsilon=math.inf, delta=1e-6, bounds=(-15, 15), y_bounds=(-40, 60), check=False)
    model.fit(X, y)
    rng = np.random.default_rng(3)
    slope = np.linalg.lstsq(np.column_stack([np.ones(len(y)), X]), y)[0]
    for _ in range(4):
        turned = slope + 2 * rng.standard_normal((2, 4))
        parts = plain_em(X, y, turned[:, 1:], turned[:, 0], np.full(2, y.std() / 2), np.full(2, 1 / 2), rounds=300)
        if min(parts[2]) > 0.1:  # not a component of a few rows
            assert model.score(X, y) > np.logaddexp.reduce(likelihood(X, y, *parts), axis=1).mean() - 0.01


def test_without_noise_components_with_other_columns_are_at_their_optimum():
    """Columns that are far from normal, with another mean in each component: EM from the fit gains nothing."""
    rng = np.random.default_rng(0)
    k = rng.integers(0, 3, 3000)
    X = np.column_stack([np.array([-3, 0, 3])[k], np.array([2, -2, 2])[k], np.zeros(3000)]) + rng.standard_normal(
        (3000, 3)
    )
    y = np.where(k == 0, 3 * X[:, 2], -3 * X[:, 2]) + 0.5 * rng.standard_normal(3000)
    model = DPMixtureRegression(2, epsilon=math.inf, delta=1e-6, bounds=(-10, 10), y_bounds=(-20, 20)).fit(X, y)
    parts = plain_em(X, y, model.coef_, model.intercept_, model.sigma_, model.weights_, rounds=200)
    assert model.score(X, y) > np.logaddexp.reduce(likelihood(X, y, *parts), axis=1).mean() - 1e-9


# --- fits ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y, k = people(6000)
    model = DPMixtureRegression(**ARGUMENTS, bounds=([-10, -5, 0], [12, 25, 1]), random_state=0)
    return model.fit(X, y), X, y, k


def test_two_components_are_found_in_units(fitted):
    model, X, y, k = fitted
    assert np.allclose(model.weights_, [0.6, 0.4], atol=0.05)
    assert np.allclose(model.coef_, COEF, atol=0.3)
    assert np.allclose(model.sigma_, SIGMA, atol=0.15)
    assert model.fit_check_.better
    best = plain_em(X, y, COEF, INTERCEPT, SIGMA, np.array([0.6, 0.4]), rounds=50)
    optimum = np.logaddexp.reduce(likelihood(X, y, *best), axis=1).mean()
    assert optimum - 0.01 < model.score(X, y) <= optimum
    known = (model.coef_, model.intercept_, model.sigma_, model.weights_)
    assert np.allclose(model.score_samples(X, y), np.logaddexp.reduce(likelihood(X, y, *known), axis=1), atol=1e-9)
    assert np.mean(model.predict_component(X, y) == k) > 0.85
    assert np.allclose(model.predict_proba(X, y).sum(axis=1), 1)
    assert np.allclose(model.predict(X), (model.intercept_ + X @ model.coef_.T) @ model.weights_)
    assert np.all(np.diff(model.weights_) <= 0)


def test_intervals_cover_the_truth_and_separate_sampling_from_privacy(fitted):
    model = fitted[0]
    table = model.summary()
    assert list(table.index[:6]) == [
        f"component 1: {name}" for name in ("share", "intercept", "x0", "x1", "x2", "sigma")
    ]
    truth = np.column_stack([[0.6, 0.4], INTERCEPT, COEF, SIGMA]).ravel()
    assert np.mean((table.lower < truth) & (truth < table.upper)) >= 0.75
    assert (table.privacy > 0).all()
    assert (table.sampling > 0).all()


def test_predictions_are_finite_for_missing_and_huge_values(fitted):
    model = fitted[0]
    X = np.array([[np.nan, 1.0, 0.0], [np.nan, np.nan, np.nan], [1e308, -1e308, 0.5]])
    assert np.isfinite(model.predict(X)).all()
    assert np.allclose(model.predict_proba(X, np.array([1e308, 0.0, -1e308])).sum(axis=1), 1)
    assert np.isfinite(model.score_samples(X, np.array([1e308, 0.0, -1e308]))).all()
    x, y, k = model.sample(5000)
    assert x.shape == (5000, 3)
    assert abs(np.mean(k == 0) - model.weights_[0]) < 0.05
    assert abs(model.score(x, y) - model.score(*fitted[1:3])) < 0.2


def test_reordered_components_keep_their_errors(fitted):
    theta = fitted[0].theta_
    turned = theta.ordered(np.array([1, 0]))
    back = turned.ordered(np.argsort(-turned.weights))
    for name in ("weights", "slopes", "spreads", "privacy", "sampling"):
        assert np.array_equal(getattr(back, name), getattr(theta, name)), name
    assert not np.array_equal(turned.privacy, theta.privacy)


def test_rows_with_missing_values_do_not_spoil_the_components():
    X, y, _ = people(20_000, seed=3)
    rng = np.random.default_rng(9)
    X[rng.uniform(size=X.shape) < 0.08] = np.nan
    y[rng.uniform(size=len(y)) < 0.1] = np.nan
    model = DPMixtureRegression(**ARGUMENTS, bounds=([-10, -5, 0], [12, 25, 1]), random_state=1).fit(X, y)
    assert np.allclose(model.coef_, COEF, atol=0.35)
    assert np.allclose(model.weights_, [0.6, 0.4], atol=0.05)


@pytest.mark.parametrize("kind", ["all missing", "no response", "duplicates", "huge", "constant column", "one column"])
def test_any_table_of_numbers_gives_finite_results(kind):
    X, y, _ = people(300)
    if kind == "all missing":
        X[:] = np.nan
    if kind == "no response":
        y[:] = np.nan
    if kind == "duplicates":
        X[:], y[:] = X[0], y[0]
    if kind == "huge":
        X[::2], y[::3] = 1e308, -1e308
    if kind == "constant column":
        X[:, 1] = 3.0
    if kind == "one column":
        X = X[:, :1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=FitWarning)
        warnings.filterwarnings("ignore", message="random_state|expect little|The start misses")
        model = DPMixtureRegression(**ARGUMENTS, bounds=(-10, 10), random_state=0).fit(X, y)
    for name in ("weights_", "coef_", "intercept_", "sigma_", "standard_errors_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.filterwarnings("ignore")
def test_newton_steps_are_undone_only_beyond_their_limit_and_the_distance_is_an_error(monkeypatch):
    X, y, _ = people(4000)
    fits = []
    for limit in (TUNING.near, math.inf, -math.inf):  # -inf: always undone
        monkeypatch.setattr(steps, "TUNING", replace(TUNING, near=limit))
        fits.append(DPMixtureRegression(**ARGUMENTS, bounds=(-15, 15), check=False, random_state=0).fit(X, y))
    usual, newton, undone = fits
    distance = np.column_stack([undone.intercept_ - newton.intercept_, undone.coef_ - newton.coef_])
    error = undone._errors.privacy.reshape(2, -1)[:, 1:-1]
    assert np.array_equal(usual.coef_, newton.coef_)
    assert np.abs(distance).max() > 0.01
    assert np.all(error > TUNING.widening * np.abs(distance))


def test_the_fit_check_fails_for_one_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8000, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.standard_normal(8000)
    with pytest.warns(FitWarning, match="no improvement over one regression"):
        model = DPMixtureRegression(**ARGUMENTS, bounds=(-8, 8), random_state=2).fit(X, y)
    assert model.suggested_components_ == 1
    assert len(model.components_misfit_) == 3


def test_the_fit_check_fails_for_one_regression_with_small_residuals():
    """Residuals of a sixth of the response's spread: the moments alone show a regression that is far from the best."""
    rng = np.random.default_rng(1)
    X = rng.normal(5, 2, (20_000, 2))
    y = 3 * X[:, 0] + rng.standard_normal(20_000)
    model = DPMixtureRegression(2, epsilon=1.0, delta=1e-6, bounds=(-5, 15), y_bounds=(-50, 50), random_state=0)
    with pytest.warns(FitWarning, match="no improvement over one regression"):
        model.fit(X, y)


def test_components_through_the_origin_go_through_it():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 5, (8000, 2))
    k = rng.integers(2, size=8000)
    y = np.where(k == 0, X @ [2.0, 1.0], X @ [-1.0, 1.5]) + 0.5 * rng.standard_normal(8000)
    model = DPMixtureRegression(fit_intercept=False, **ARGUMENTS, bounds=(0, 10), random_state=0).fit(X, y)
    assert np.array_equal(model.intercept_, [0.0, 0.0])
    assert np.allclose(model.predict(np.array([[0.0, 0.0]])), 0.0, atol=1e-9)
    assert np.allclose(np.sort(model.coef_[:, 0]), [-1.0, 2.0], atol=0.2)
    assert not any("intercept" in name for name in model.summary().index)


@pytest.mark.parametrize(
    ("change", "n", "words"),
    [
        ({"n_components": 1}, 500, "n_components must be at least 2, got 1"),
        ({"n_components": 2.5}, 500, "n_components"),
        ({"fit_intercept": "no"}, 500, "fit_intercept must be True or False"),
        ({"n_components": 40}, 200, "40 components of 3 columns have 240 parameters"),
    ],
)
def test_refusals_name_the_argument(change, n, words):
    X, y, _ = people(n)
    with pytest.raises(ValueError, match=words):
        DPMixtureRegression(**{**ARGUMENTS, **change}, bounds=(-10, 20)).fit(X, y)


def test_an_infeasible_plan_advises_more_rows_or_a_larger_epsilon():
    model = DPMixtureRegression(3, **ARGUMENTS, bounds=(-10, 10))
    small, large = model.plan(800, 10), model.plan(200_000, 10)
    assert not small.feasible
    assert "rows or epsilon=" in small.advice
    assert large.feasible
    assert small.prediction.failure > large.prediction.failure
    medians = [model.plan(n, 5).prediction.median for n in (5000, 20_000, 80_000)]
    assert medians == sorted(medians, reverse=True)
    assert json.dumps(small.to_dict())


def test_a_plan_is_infeasible_if_the_start_mostly_fails():
    """Three components in 5,000 rows at ε = 1 are missed in more than half of the fits: not feasible."""
    model = DPMixtureRegression(3, epsilon=1.0, delta=1e-6, y_bounds=(-10, 10), bounds=(-6, 6))
    few, more, many = (model.plan(n, 5) for n in (5000, 9000, 40_000))
    assert not few.feasible
    assert "misses components in about" in few.advice
    assert few.prediction.failure > 0.5 > 1 / 3 > more.prediction.failure > 0.05 > many.prediction.failure
    assert more.feasible
    assert many.feasible


@pytest.mark.filterwarnings("ignore")
def test_a_fit_replayed_on_neighbours_differs_only_as_promised(monkeypatch):
    monkeypatch.setattr(cells, "RESTARTS", 1)  # what follows the answers is the same on all neighbours
    monkeypatch.setattr(start, "CELLS", {1: (4, 5), 2: (3, 5)})
    monkeypatch.setattr(mixture_regression, "TUNING", replace(TUNING, scores=2, newton=2))
    monkeypatch.setattr(mixture_regression, "predict_fit", lambda *_: PredictedFit())
    X, y, _ = people(120)
    X[::9, 0] = np.nan
    estimator = DPMixtureRegression(epsilon=1.0, delta=1e-4, bounds=(-10, 20), y_bounds=(-40, 60))
    first = record(estimator, X, y)
    verdict = Verdict()
    where = np.array([60])
    for kind in list(neighbours(Table("as drawn", X, y), np.ones(3), missing=True, where=where))[::2]:
        verdict.merge(compare(first, record(estimator, *kind[1:], frozen=first)), kind.name)
    assert verdict.faults == []
    assert max(verdict.used.values()) > 0.45


def test_intervals_end_where_a_share_or_a_spread_does():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (2000, 1))
    y = np.where(rng.random(2000) < 0.05, 3, -3) * x[:, 0] + 0.2 * rng.standard_normal(2000)
    given, beyond = {"epsilon": 0.3, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-5, 5)}, 0
    for seed in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DPMixtureRegression(**given, random_state=seed).fit(x, y)
        ends = model.conf_int(0.9999).reshape(2, 4, 2)
        beyond += model.weights_[1] < 3.89 * model.standard_errors_.reshape(2, 4)[1, 0]
        assert (ends[:, [0, 3], 0] >= 0).all()
        assert (ends[:, 0, 1] <= 1).all()
    assert beyond  # so the ends could lie below 0


def test_repeated_responses_are_a_point_mass():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (20_000, 1))
    y = np.where(rng.random(20_000) < 0.4, 3.0, x[:, 0] + rng.standard_normal(20_000))
    with pytest.warns(UserWarning, match="component 2 may have collapsed onto repeated responses"):
        DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-6, 6), random_state=0).fit(x, y)


def test_a_column_of_rare_values_does_not_get_a_huge_coefficient():
    """Three rows of 4,000 would decide the coefficient, and no release sees them: it was 200 to 2,000, and is 15 in the
    median, above 60 in an eighth of the fits.
    """
    rng = np.random.default_rng(1)
    rare = (np.arange(4000) % 1400 == 7).astype(float)
    steep = rng.uniform(size=4000) < 0.4
    x = rng.standard_normal(4000)
    y = np.where(steep, 2, -2) * x + 0.5 * rng.standard_normal(4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {**ARGUMENTS, "bounds": ([-5, 0], [5, 1])}
        rows = np.column_stack([x, rare])
        found = np.array([DPMixtureRegression(**given, random_state=seed).fit(rows, y).coef_ for seed in range(9)])
    assert np.allclose(np.sort(found[:, :, 0], axis=1), [-2, 2], atol=0.2)
    assert np.median(np.abs(found[:, :, 1]).max(axis=1)) < 60


@pytest.mark.parametrize(("limit", "wide"), [(8, False), (2000, True)])
def test_wide_response_bounds_are_reported(limit, wide):
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (20_000, 1))
    y = np.where(rng.uniform(size=20_000) < 0.5, 2, -2) * x[:, 0] + 0.5 * rng.standard_normal(20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixtureRegression(2, epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-limit, limit))
        model.fit(x, y)
    assert ("wide-response-bounds" in [each.code for each in model.diagnostics_]) == wide
    few = TUNING.responses
    lost = -few * model.score(np.zeros((few, 1)), np.full(few, float(limit)))
    assert (lost > model.fit_check_.lead * len(y)) == wide
