"""Queries of mixtures of regressions: likelihood equations, bounds that no row exceeds and some row reaches."""

import math
import warnings

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pytest

from dpem.models.mixture_regression import newton
from dpem.models.mixture_regression.cells import Cells, edges, fit_cells
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.estimator import DPMixtureRegression
from dpem.models.mixture_regression.queries import (
    FAR,
    FAR_WEIGHT,
    ColumnSizes,
    ColumnSquares,
    ComponentScores,
    LeadAndMissed,
    RegressionMoments,
    ResidualCells,
    UnevenSpread,
    mean_cut_square,
)
from dpem.tables.schema import Schema


def some_components(present=1.0):
    return Components(
        present * np.array([0.6, 0.4]), np.array([[0.2, 0.7, -0.3, 0.1], [-0.3, -0.6, 0.2, 0.3]]), np.array([0.5, 0.8])
    )


def schema(d=3):
    names = [f"x{j}" for j in range(d)]
    return Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {}, y_bounds=(-1.0, 1.0))


def skewed_frame(d=3):
    rng = np.random.default_rng(5)
    return Frame(rng.uniform(-0.2, 0.2, d), np.eye(d) * 4 + rng.uniform(-1, 1, (d, d)), 0.1, 0.3)


def test_unclipped_scores_are_the_derivatives_of_the_log_likelihood():
    rng = np.random.default_rng(0)
    v, t = np.column_stack([np.ones(50), rng.exponential(size=(50, 3))]), rng.standard_normal(50)
    theta = some_components()
    query = ComponentScores(schema(), skewed_frame(), theta, 1e6, 1e3)
    share, psi, square = query.factors(xp, v, t)

    def total(step):
        return theta_after(theta, step).log_density(xp, v, t).sum()

    def theta_after(theta, step):
        parts = step.reshape(2, 6)
        masses = theta.masses * np.exp(parts[:, 0])
        return Components(
            masses, theta.coefficients + theta.spreads[:, None] * parts[:, 1:-1], theta.spreads * np.exp(parts[:, -1])
        )

    eye = 1e-5 * np.eye(12)
    slope = np.array([(total(e) - total(-e)) / 2e-5 for e in eye]).reshape(2, 6)
    own = share - theta.masses
    assert np.allclose(slope[:, 0], own.sum(axis=0), atol=1e-6)
    assert np.allclose(slope[:, 1:-1], (share * psi).T @ v, atol=1e-5)
    assert np.allclose(slope[:, -1], np.sum(share * (square + 1e6 / 2 - 1), axis=0), atol=1e-5)


def test_the_mean_score_of_rows_that_follow_the_components_is_known_whatever_the_columns_are():
    rng = np.random.default_rng(1)
    theta = some_components()
    v = np.column_stack([np.ones(400_000), rng.exponential(size=(400_000, 3)) - 1])
    k = rng.choice(2, 400_000, p=theta.masses)
    t = np.sum(v * theta.coefficients[k], axis=1) + theta.spreads[k] * rng.standard_normal(len(v))
    query = ComponentScores(schema(), skewed_frame(), theta, 1.5, 1.2)
    share, psi, square = query.factors(xp, v, t)
    high, low = query.heights
    seen = np.column_stack([high * share.mean(0), (share * psi).T @ v / len(v), low * (share * square).mean(0)])
    assert np.allclose(seen.ravel(), query.expected(), atol=0.01)
    assert np.abs(query.expected()).max() > 0.5


def test_the_jacobian_is_the_derivative_of_the_mean_score():
    theta = some_components(present=0.9)
    query = ComponentScores(schema(), skewed_frame(), theta, 2.0, 2.0)
    full = newton.ExpectedScores.of(query, np.eye(12), 4000).jacobian
    for place, size in ((0, 12), (2, 12), (5, 12), (9, 12)):
        step = 0.02 * np.eye(size)[place]

        def mean(step, theta=theta):
            other = newton.moved(theta, step)
            v, t, weight = newton.simulated_rows(other, 4000)
            share, psi, square = query.factors(xp, v, t)
            high, low = query.heights
            wide = weight[:, None] * other.masses.sum()
            parts = [high * (wide * share).sum(0)[:, None], (wide * share * psi).T @ v]
            return np.column_stack([*parts, low * (wide * share * square).sum(0)[:, None]]).ravel()

        assert np.allclose((mean(step) - mean(-step)) / 0.04, full[:, place], atol=0.03), place


def test_an_answer_farther_from_its_mean_than_expected_widens_the_errors():
    theta = some_components()
    query = ComponentScores(schema(), skewed_frame(), theta, 2.0, 2.0)
    now, noise = newton.Estimate(theta, 0.01**2 * np.eye(12)), 0.005
    expected = newton.ExpectedScores.of(query, np.eye(12))
    near = newton.improved(now, expected, query.expected(), noise, 0.2)
    off = expected.jacobian @ np.full(12, 0.05)  # five of the errors, in every parameter
    far = newton.improved(now, expected, query.expected() + off, noise, 0.2)
    step = np.log(far.theta.masses / theta.masses)  # farther towards the solution than without
    gain, _ = expected.gain(now.error, 0.2, noise)
    assert np.all(np.diag(near.error) < 0.01**2)
    assert np.trace(far.error) > 2 * np.trace(near.error)
    assert np.linalg.norm(step - 0.05) < np.linalg.norm((gain @ off)[::6] - 0.05)
    assert expected.widening(now.error, 1e6 * off, noise) == newton.MOST_WIDENED
    assert expected.widening(now.error, off, 0.0) == 1.0


def test_the_mean_of_a_cut_square():
    e = np.random.default_rng(0).standard_normal(1_000_000)
    for cut in (0.5, 1.5, 3.0):
        assert math.isclose(mean_cut_square(cut), np.minimum(e * e, cut * cut).mean(), abs_tol=0.005)


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
        "scores": ComponentScores(schema(d), frame, theta, 1.8, 2.2),
        "scores of far components": ComponentScores(
            schema(d),
            frame,
            Components(np.array([0.99, 0.01]), 1e3 * theta.coefficients, np.array([1e-3, 1e3])),
            1.8,
            2.2,
        ),
    }


def extreme_rows(d=3, seed=0, count=150):
    """Corners, cancelling pairs, holes, numbers near the ends of what floats hold, and rows near the middle."""
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
    plain = ComponentScores.factors

    def unclipped(self, xp, v, t):
        share, _, square = plain(self, xp, v, t)
        return share, np.nan_to_num(self.theta.residuals(xp, v, t)), square

    def counted_twice(self, xp, v, t):
        share, psi, square = plain(self, xp, v, t)
        return np.minimum(2 * share, 1.0), psi, square

    def low_lift(self):
        return self.clip / 2, 2 * self.lift * self.clip / self.cut**2

    query = queries()["scores"]
    honest = query.bound.l2
    for name, bug in (("factors", unclipped), ("factors", counted_twice), ("heights", property(low_lift))):
        with monkeypatch.context() as planted:
            planted.setattr(ComponentScores, name, bug)
            assert furthest(query)[1] > query.bound.l2, bug
    assert furthest(query)[1] <= honest
    monkeypatch.setattr("dpem.models.mixture_regression.queries.into_ball", lambda xp, v, radius: np.nan_to_num(v))
    for name in ("moments", "directions"):
        assert furthest(queries()[name])[1] > queries()[name].bound.l2, name


def test_the_bound_of_the_scores_is_reached_by_a_climb():
    """Hill-climbing over pairs of rows and components: never beyond, and nearly there."""
    rng = np.random.default_rng(3)
    best = 0.0
    for trial in range(25):
        theta = Components(
            np.array([0.5, 0.5]), rng.standard_normal((2, 4)) * rng.uniform(0, 3), np.exp(rng.uniform(-2, 1, 2))
        )
        query = ComponentScores(schema(), skewed_frame(), theta, rng.uniform(0.5, 4), rng.uniform(0.5, 3))
        rows = rng.uniform(-1, 1, (2, 4))
        now = 0.0
        for _ in range(50):
            new = np.clip(rows + rng.standard_normal((2, 4)) * rng.choice([0.02, 0.2, 1.0]), -1, 1)
            a, b = (query.block(xp, row[None, :3], row[3:]) for row in new)
            part = float(np.linalg.norm(a - b)) / query.bound.l2
            if part > now:
                rows, now = new, part
        best = max(best, now)
        assert now <= 1 + 1e-12, trial
    assert best > 0.9


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


def test_cells_of_invented_components_give_them_back():
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


def test_parallel_components_are_read_from_the_counts():
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


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.03, True)])
def test_rows_far_from_every_component_are_said(share, said):
    x, y = with_outliers(share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-40, 40), random_state=0)
        model.fit(x, y)
    codes = [each.code for each in model.diagnostics_]
    assert ("missed-rows" in codes) == said
    far = np.abs(y[:, None] - model.intercept_ - x @ model.coef_.T) > FAR * model.sigma_
    assert math.isclose(model.theta_.missed, far.all(axis=1).mean() if said else 0.0, abs_tol=0.006)


def test_the_fit_check_counts_missed_rows_and_keeps_its_bound():
    x, y = with_outliers(0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixtureRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(-40, 40), random_state=0)
        model.fit(x, y)
    own, theta = model._own, model.theta_
    query = LeadAndMissed(model.schema_.unit(), own, theta, own.simpler(theta), 1.0)
    rows, responses = extreme_rows(1)
    with np.errstate(all="ignore"):
        each = np.array([query.block(xp, rows[[i]], responses[[i]]) for i in range(len(responses))])
    assert set(each[:, 2]) == {0.0, FAR_WEIGHT}
    assert not each[np.isnan(responses), 2].any()
    apart = np.linalg.norm(each[:, None] - each, axis=2).max()
    assert 0.8 * query.bound.l2 <= apart <= query.bound.l2
    assert np.linalg.norm(each, axis=1).max() <= query.bound.size_l2
