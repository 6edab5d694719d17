"""Queries of mixtures of regressions: likelihood equations, bounds that no row exceeds and some row reaches."""

import math
import warnings

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pytest

from dpem.models.mixture_regression import scores
from dpem.models.mixture_regression.cells import Cells, edges, fit_cells
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.estimator import DPMixtureRegression
from dpem.models.mixture_regression.family import RegressionFamily, simulated_rows
from dpem.models.mixture_regression.queries import (
    FAR,
    FAR_WEIGHT,
    ColumnSizes,
    ColumnSquares,
    LeadAndMissed,
    RegressionMoments,
    ResidualCells,
    UnevenSpread,
)
from dpem.models.mixture_regression.rows import first_rows
from dpem.models.mixture_regression.scores import (
    Estimate,
    ExpectedScores,
    ScoreAnswer,
    combined_estimate,
)
from dpem.queries.narrow import into_ball
from dpem.tables.schema import Schema


def some_components():
    return Components(
        np.array([0.6, 0.4]), np.array([[0.2, 0.7, -0.3, 0.1], [-0.3, -0.6, 0.2, 0.3]]), np.array([0.5, 0.8])
    )


def schema(d=3):
    names = [f"x{j}" for j in range(d)]
    return Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {}, y_bounds=(-1.0, 1.0))


def skewed_frame(d=3):
    rng = np.random.default_rng(5)
    return Frame(rng.uniform(-0.2, 0.2, d), np.eye(d) * 4 + rng.uniform(-1, 1, (d, d)), 0.1, 0.3)


def family(free=None, frame=None):
    free = np.eye(4) if free is None else free
    return RegressionFamily(2, skewed_frame() if frame is None else frame, free, np.zeros(4))


def drawn(count, seed=0):
    """Rows within the bounds, of skewed columns, a fifth of them without a response."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.exponential(0.2, (count, 3)) - 0.2, 0.3 * rng.standard_normal(count)])
    x[::5, -1] = np.nan
    return x


@pytest.mark.parametrize("free", [np.eye(4), np.linalg.qr(np.ones((4, 1)), mode="complete")[0][:, 1:]])
def test_scores_are_the_derivatives_of_the_log_likelihood_along_moves(free):
    own, theta, x = family(free), some_components(), drawn(50)
    v, t, seen = own.rows(xp, x)

    def total(step):
        return own.moved(theta, step).log_density(xp, v, t) @ seen

    eye = 1e-5 * np.eye(own.count)
    slope = np.array([(total(e) - total(-e)) / 2e-5 for e in eye])
    assert np.allclose(slope, own.scores(xp, theta, x).sum(axis=0), atol=1e-4)
    assert not own.scores(xp, theta, x)[::5].any()


def test_em_is_weighted_least_squares_on_repeated_rows():
    own, theta, x = family(), some_components(), drawn(60, seed=1)
    times = np.random.default_rng(2).integers(1, 5, len(x))
    one = own.m_step(theta, own.e_step(x, times / times.sum())(theta))
    other = own.m_step(theta, own.statistics(xp, theta, np.repeat(x, times, axis=0), None) / times.sum())
    v, t, seen = own.rows(xp, x)
    share = theta.responsibilities(xp, theta.residuals(xp, v, t)) * (seen * times)[:, None]
    for k in range(2):
        root = np.sqrt(share[:, k])
        assert np.allclose(one.coefficients[k], np.linalg.lstsq(root[:, None] * v, root * t)[0])
        residual = t - v @ one.coefficients[k]
        assert math.isclose(one.spreads[k] ** 2, share[:, k] @ residual**2 / share[:, k].sum())
    for name in ("weights", "coefficients", "spreads"):
        assert np.allclose(getattr(one, name), getattr(other, name)), name
    assert np.allclose(one.weights, share.sum(axis=0) / share.sum())


def test_the_jacobian_is_the_derivative_of_the_mean_score(monkeypatch):
    monkeypatch.setattr(scores, "SIMULATED_PAIRS", 4000)
    own, theta = family(), some_components()
    expected = ExpectedScores.at(schema(), own, theta)

    def mean(step):
        v, t, weight = simulated_rows(own.moved(theta, step), 4000)
        return weight @ expected.query.each_of(xp, v, t, np.ones(len(t)))

    for place in (0, 1, 4, 7, 10):
        step = 0.02 * np.eye(own.count)[place]
        assert np.allclose((mean(step) - mean(-step)) / 0.04, expected.jacobian[:, place], atol=0.03), place


def test_the_mean_of_centered_scores_is_zero_whatever_the_columns_are():
    """Rows follow the components, columns are skewed: the mean of the clipped scores alone is not 0."""
    own, theta, rng = family(), some_components(), np.random.default_rng(0)
    query, n = ExpectedScores.at(schema(), own, theta).query, 200_000
    skewed = np.exp(rng.standard_normal((n, 2))) - 1
    v = np.column_stack([np.ones(n), skewed, rng.random(n) < 0.1])
    k = rng.choice(2, n, p=theta.weights)
    t = np.sum(v * theta.coefficients[k], axis=1) + theta.spreads[k] * rng.standard_normal(n)
    clipped = into_ball(xp, own.scores_of(xp, theta, v, t, np.ones(n)) @ query.whitener, query.radius)
    centered = query.each_of(xp, v, t, np.ones(n))
    assert np.linalg.norm(clipped.mean(axis=0)) > 0.08
    assert np.linalg.norm(centered.mean(axis=0)) < 0.02


def test_difference_is_the_inverse_of_a_move():
    own, theta = family(), some_components()
    step = np.random.default_rng(0).uniform(-0.3, 0.3, own.count)
    assert np.allclose(own.difference(own.moved(theta, step), theta), step)


def test_simulated_rows_determine_every_coefficient_of_many_columns():
    v, _, weights = simulated_rows(Components(np.full(2, 0.5), np.zeros((2, 40)), np.ones(2)), 10)
    assert np.allclose((v * weights[:, None]).T @ v, np.eye(40))


def answers_at(truth, own, noise, thetas):
    """Exact mean scores at several parameters where the rows follow ``truth``."""
    return [
        ScoreAnswer(expected, expected.jacobian @ own.difference(truth, expected.query.theta), noise)
        for expected in (ExpectedScores.at(schema(), own, theta) for theta in thetas)
    ]


def test_combined_scores_give_the_components_that_rows_follow_as_far_as_the_noise_allows():
    own, theta = family(), some_components()
    prior = Estimate(theta, 0.1**2 * np.eye(own.count))
    truth = own.moved(theta, np.full(own.count, 0.02))
    thetas = [theta, own.moved(theta, np.linspace(-0.02, 0.02, own.count))]
    exact, noisy, nothing = (
        combined_estimate(own, prior, answers_at(truth, own, noise, thetas)) for noise in (1e-6, 0.1, 1e6)
    )
    for name in ("weights", "coefficients", "spreads"):
        assert np.allclose(getattr(exact.theta, name), getattr(truth, name), atol=1e-3), name
        assert np.allclose(getattr(nothing.theta, name), getattr(theta, name), atol=1e-6), name
    assert np.trace(exact.error) < np.trace(noisy.error) < np.trace(nothing.error)
    assert np.allclose(nothing.error, prior.error)


def test_scores_of_equal_components_can_be_combined():
    """Their information and the derivative of their scores are singular."""
    own, equal = family(), Components(np.full(2, 0.5), np.zeros((2, 4)), np.ones(2))
    expected = ExpectedScores.at(schema(), own, equal)
    prior = Estimate(equal, np.linalg.inv(expected.information))
    estimate = combined_estimate(own, prior, [ScoreAnswer(expected, np.full(own.count, 0.01), 0.05)])
    assert np.isfinite(estimate.error).all()
    assert np.isfinite(estimate.theta.coefficients).all()


def test_a_component_of_one_large_row_has_an_m_step():
    """Its normal equations have rank 1 and entries far above its mass."""
    own, theta = family(), some_components()
    z = np.array([1.0, 1e5, -3e4, 7e3, 2e4])
    statistics = np.concatenate([np.tile((1e-3 * np.outer(z, z)).ravel(), 2), [0.0]])
    assert np.isfinite(own.m_step(theta, statistics).coefficients).all()


def test_a_far_score_counts_less_than_a_near_one_and_two_count_more_than_one():
    own, theta = family(), some_components()
    prior = Estimate(theta, np.eye(own.count))
    far = own.moved(theta, np.full(own.count, 0.4))
    near_only, both, far_only = (
        float(np.trace(combined_estimate(own, prior, answers_at(theta, own, 0.02, thetas)).error))
        for thetas in ([theta], [theta, far], [far])
    )
    assert both < near_only < far_only / 4


def test_surrogate_rows_of_the_start_lie_within_the_bounds_and_hold_the_counted_residuals():
    own, theta, rng = family(), some_components(), np.random.default_rng(0)
    mass = np.zeros((4, 10))
    mass[:, 7] = 0.25
    counted = Cells(mass, 0.01, 1000, edges(4, 2.6), edges(10, 3.2))
    one = np.array([0.0, 1.0, 0.0, 0.0]), 0.5
    x, weights = first_rows(own, (theta, theta), one, counted, 2000, rng)
    assert np.abs(x).max() <= 1
    assert len(weights) == len(x)
    v, t, _ = own.rows(xp, x)
    r = (t - v @ one[0]) / one[1]
    inside = (counted.r_edges[6] < r) & (r < counted.r_edges[7])
    assert weights[inside].sum() > 0.25 * 0.9  # a few are brought to the bounds


def queries(d=3):
    frame, theta = skewed_frame(d), some_components()
    regression = np.array([0.1, 0.4, -0.2, 0.3])
    axes = np.linalg.qr(np.random.default_rng(2).standard_normal((d, 2)))[0]
    return {
        "sizes": ColumnSizes(schema(d), np.array([0.2, -0.1, 0.0, 0.3]), np.array([0.5, 0.9, 0.01, 1.0])),
        "squares": ColumnSquares(schema(d), np.array([0.9, -0.4, 0.0])),
        "moments": RegressionMoments(schema(d), frame, 2.5),
        "directions": UnevenSpread(schema(d), frame, regression, 0.6, 2.0),
        "cells": ResidualCells(schema(d), frame, regression, 0.6, axes, edges(5, 2.6), edges(9, 3.2)),
        "scores": ExpectedScores.at(schema(d), family(), theta).query,
        "scores of far components": ExpectedScores.at(
            schema(d),
            family(),
            Components(np.array([0.99, 0.01]), 1e3 * theta.coefficients, np.array([1e-3, 1e3])),
        ).query,
    }


def extreme_rows(d=3, seed=0, count=150):
    """Corners, cancelling pairs, missing values, the largest and smallest floats, and rows near the middle."""
    rng = np.random.default_rng(seed)
    corners = rng.choice([-1.0, 1.0], (count, d + 1))
    near = np.concatenate([rng.uniform(-0.3, 0.3, (count, d + 1)), rng.choice([-1, 1], (count, d + 1)) * 0.05])
    odd = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, 1.0, -1.0], (count, d + 1))
    rows = np.concatenate([corners, -corners, near, rng.uniform(-1, 1, (count, d + 1)), odd])
    return rows[:, :d], rows[:, d]


def furthest(query):
    """The longest contribution of extreme rows, and the largest distance between two."""
    X, y = extreme_rows()
    with np.errstate(all="ignore"):
        each = np.array([query.block(xp, X[[i]], y[[i]]) for i in range(len(y))])
    assert np.isfinite(each).all()
    gram = each @ each.T
    square = np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2 * gram
    return np.linalg.norm(each, axis=1).max(), math.sqrt(square.max())


@pytest.mark.parametrize("name", queries())
def test_no_pair_of_rows_goes_beyond_a_bound_and_some_come_near(name):
    query = queries()[name]
    size, apart = furthest(query)
    assert size <= query.bound.size_l2
    assert apart <= query.bound.l2 * (1 + 1e-12)
    reached = {"sizes": 0.95, "moments": 0.9, "directions": 0.85, "cells": 0.999, "leads": 0.6}.get(name, 0.85)
    assert apart >= reached * query.bound.l2


def test_planted_bugs_are_seen_by_the_same_rows(monkeypatch):
    monkeypatch.setattr("dpem.models.mixture_regression.queries.into_ball", lambda xp, v, radius: np.nan_to_num(v))
    monkeypatch.setattr("dpem.models.mixture_regression.scores.into_ball", lambda xp, v, radius: np.nan_to_num(v))
    for name in ("moments", "directions", "scores"):
        assert furthest(queries()[name])[1] > queries()[name].bound.l2, name


def test_the_cell_of_each_row_adds_up_to_the_counts():
    query, x = queries()["cells"], drawn(40)
    each = query.each(xp, x)
    assert set(each.sum(axis=1)) == {0.0, 1.0}
    assert np.array_equal(each.sum(axis=0), query.contributions(xp, x[:, :-1], x[:, -1]))


@pytest.mark.parametrize("name", queries())
def test_every_array_library_gives_the_same_sums(name):
    query = queries()[name]
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-1.1, 1.1, (40, 3)), rng.uniform(-1.1, 1.1, 40)
    X[::5, 1], X[::7, 0], y[::6] = np.nan, np.inf, np.nan
    with np.errstate(all="ignore"):
        there = query.block(array_api_strict, array_api_strict.asarray(X), array_api_strict.asarray(y))
        assert np.allclose(np.asarray(there), query.block(xp, X, y), rtol=1e-10, atol=1e-10)


def test_rows_without_a_response_add_nothing_but_to_the_sizes():
    X, y = np.random.default_rng(0).uniform(-1, 1, (30, 3)), np.full(30, np.nan)
    for name, query in queries().items():
        assert name in ("sizes", "squares") or not np.any(query.block(xp, X, y)), name


def test_missing_values_are_filled_with_conditional_means():
    rng = np.random.default_rng(0)
    spread = 0.04 * (0.6 + 0.4 * np.eye(4))
    values, vectors = np.linalg.eigh(spread)
    frame = Frame(np.array([0.1, -0.1, 0.2, 0.0]), (vectors / np.sqrt(values)) @ vectors.T, 0.0, 1.0)
    x = frame.mean + 0.1 * rng.standard_normal((20, 4))
    x[:, [1, 3]] = np.nan
    seen, lost = [0, 2], [1, 3]
    pull = np.linalg.solve(spread[np.ix_(seen, seen)], spread[np.ix_(seen, lost)])
    wanted = frame.mean[lost] + (x[:, seen] - frame.mean[seen]) @ pull
    assert np.allclose(frame.filled(xp, x)[:, lost], wanted, atol=1e-3)
    assert np.array_equal(frame.filled(xp, x)[:, seen], x[:, seen])


def test_exact_cells_of_known_components_give_these_components():
    """Weighted least squares on exact cell shares, of three components."""
    x_edges, r_edges = edges(8, 2.6), edges(16, 3.2)
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((200_000, 2)), rng.choice(3, 200_000, p=[0.5, 0.3, 0.2])
    slopes = np.array([[0.7, 0.0], [-0.5, 0.6], [-0.4, -0.8]])
    r = np.array([0.1, -0.2, 0.4])[k] + np.sum(slopes[k] * x, axis=1) + 0.5 * rng.standard_normal(len(x))
    bins = [np.concatenate([[-np.inf], e, [np.inf]]) for e in (x_edges, x_edges, r_edges)]
    counts = np.histogramdd(np.column_stack([x, r]), bins)[0] / len(x)
    found = fit_cells(Cells(counts, 1e-4, len(x), x_edges, r_edges), 3)
    order = np.argsort(-found.weights)
    assert np.allclose(found.weights[order], [0.5, 0.3, 0.2], atol=0.03)
    assert np.allclose(found.slopes[order], slopes, atol=0.08)
    assert np.allclose(found.spreads, 0.5, atol=0.08)


def test_parallel_components_are_estimated_from_the_counts():
    """Two intercepts and spreads, one slope: every component of the parallel start has the slope of the regression."""
    x_edges, r_edges = edges(6, 2.6), edges(12, 3.2)
    rng = np.random.default_rng(1)
    x, low = rng.standard_normal(200_000), rng.uniform(size=200_000) < 0.3
    r = np.where(low, -1.2, 0.5) + np.where(low, 0.3, 0.6) * rng.standard_normal(len(x))
    bins = [np.concatenate([[-np.inf], e, [np.inf]]) for e in (x_edges, r_edges)]
    counts = np.histogramdd(np.column_stack([x, r]), bins)[0] / len(x)
    found = fit_cells(Cells(counts, 1e-4, len(x), x_edges, r_edges), 2, parallel=True)
    order = np.argsort(found.weights)
    assert np.array_equal(found.slopes, np.zeros((2, 1)))
    assert np.allclose(found.weights[order], [0.3, 0.7], atol=0.03)
    assert np.allclose(found.intercepts[order], [-1.2, 0.5], atol=0.08)
    assert np.allclose(found.spreads[order], [0.3, 0.6], atol=0.08)


def with_outliers(share, seed=0):
    """Two components, and responses that are far from both."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (20_000, 1))
    y = np.where(rng.random(20_000) < 0.4, 2, -2) * x[:, 0] + 0.3 * rng.standard_normal(20_000)
    return x, np.where(rng.random(20_000) < share, rng.choice([-1, 1], 20_000) * rng.uniform(12, 38, 20_000), y)


@pytest.mark.parametrize(("share", "is_reported"), [(0.0, False), (0.03, True)])
def test_missed_rows_are_reported(share, is_reported):
    x, y = with_outliers(share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-40, 40), random_state=0)
        model.fit(x, y)
    codes = [each.code for each in model.diagnostics_]
    assert ("missed-rows" in codes) == is_reported
    far = np.abs(y[:, None] - model.intercept_ - x @ model.coef_.T) > FAR * model.sigma_
    assert math.isclose(model.theta_.missed, far.all(axis=1).mean() if is_reported else 0.0, abs_tol=0.006)


def test_the_fit_check_counts_missed_rows_and_keeps_its_bound():
    x, y = with_outliers(0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-40, 40), random_state=0)
        model.fit(x, y)
    own, theta = model._fitted_model, model.theta_
    query = LeadAndMissed(model.schema_.unit(), own, theta, own.simpler(theta), 1.0, own.largest(theta))
    rows, responses = extreme_rows(1)
    with np.errstate(all="ignore"):
        each = np.array([query.block(xp, rows[[i]], responses[[i]]) for i in range(len(responses))])
    assert set(each[:, -1]) == {0.0, FAR_WEIGHT}
    assert not each[np.isnan(responses), -1].any()
    apart = np.linalg.norm(each[:, None] - each, axis=2).max()
    assert 0.8 * query.bound.l2 <= apart <= query.bound.l2
    assert np.linalg.norm(each, axis=1).max() <= query.bound.size_l2
