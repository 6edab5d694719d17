"""Categorical columns of a linear regression: any number of levels, any baseline, unequal shares."""

import warnings

import array_api_compat.numpy as xp
import numpy as np
import pandas as pd
import pytest

from dpem import DPLinearRegression
from dpem.models.linear_regression.columns import ColumnHistograms, column_coding, column_summaries
from dpem.tables.schema import Schema


def with_factor(levels, n, seed, shares=None, baseline=0):
    """A factor whose first level is lower by 1, and the true effects against the baseline."""
    rng = np.random.default_rng(seed)
    level = rng.choice(levels, n, p=shares)
    effect = np.zeros(levels)
    effect[0] = -1.0
    names = [f"l{k}" for k in range(levels)]
    order = [names[baseline], *(name for k, name in enumerate(names) if k != baseline)]
    truth = np.array([effect[names.index(name)] - effect[baseline] for name in order[1:]])
    return pd.DataFrame({"month": [names[k] for k in level]}), effect[level] + rng.standard_normal(n), order, truth


def fitted(X, y, order, **changes):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": {}, "y_bounds": (-8, 8), "levels": {"month": order}, **changes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DPLinearRegression(**settings).fit(X, y)


@pytest.mark.parametrize("baseline", [0, 5])
def test_twelve_balanced_levels_have_the_right_effects(baseline):
    """Seeded, so it cannot fail by chance. With dummies centred elsewhere than at their shares all effects were shifted
    together, by up to .8, and a quarter of the intervals held.
    """
    held, shift = [], []
    for seed in range(4):
        X, y, order, truth = with_factor(12, 20_000, seed, baseline=baseline)
        model = fitted(X, y, order, random_state=seed)
        low, high = model.conf_int()[1:12].T
        held.append(np.mean((low <= truth) & (truth <= high)))
        shift.append(np.mean(model.coef_ - truth))
    assert np.mean(held) > 0.85
    assert np.abs(shift).max() < 0.2


# --- the coding of factors ------------------------------------------------------------------------------------------


def test_lengths_do_not_depend_on_the_baseline_and_second_moments_follow_from_shares():
    """A row of level k has the squared length 1/p_k − 1, whichever level is left out."""
    shares = np.array([0.15, 0.2, 0.25, 0.4])
    for baseline in range(4):
        order = [baseline, *(k for k in range(4) if k != baseline)]
        schema = Schema.of(["f"], {}, {"f": [float(k) for k in order]})
        query = ColumnHistograms(schema, with_response=False)
        columns = column_summaries(query, np.append(shares[order[1:]], [shares[baseline], 0.0]), 1e-9)
        coding = column_coding(schema, columns, jointly=True)
        u = schema.coordinates(xp, np.arange(4.0)[:, None])
        z = (u - coding.centre) @ coding.scale.T
        np.testing.assert_allclose(np.sum(z**2, axis=1), 1 / shares - 1, rtol=1e-6)
        np.testing.assert_allclose((z * shares[:, None]).T @ z, coding.gram, atol=1e-6)


def test_one_release_of_shares_costs_the_same_for_two_levels_as_for_fifty():
    def bound(levels):
        schema = Schema.of(["f", "g"], {"g": (0.0, 1.0)}, {"f": [float(k) for k in range(levels)]})
        return ColumnHistograms(schema).bound.l2

    assert bound(2) == bound(50) == np.sqrt(6)


def test_a_row_moves_the_shares_of_a_factor_as_far_as_stated():
    schema = Schema.of(["f", "g"], {"g": (0.0, 1.0)}, {"f": [0.0, 1.0, 2.0]}, y_bounds=(0.0, 1.0))
    query = ColumnHistograms(schema)
    rows = [(0, 0.1, 0.2), (1, 0.9, 0.8), (2, np.nan, 0.5), (7, np.inf, 0.5), (1, 0.3, np.nan), (np.nan, 0.3, -4.0)]
    each = np.array([query.block(xp, np.array([row[:2]]), np.array([row[2]])) for row in rows])
    assert (each.sum(axis=1) == 3).all()
    apart = np.linalg.norm(each[:, None] - each, axis=2)
    assert apart.max() == pytest.approx(query.bound.l2)


def test_the_answer_does_not_depend_on_the_baseline_beyond_noise():
    """At a large ε nothing but the baseline differs: all differences between levels are the same."""
    X, y, order, _ = with_factor(8, 4000, 3)
    fits = [fitted(X, y, [order[k], *order[:k], *order[k + 1 :]], epsilon=1e4, random_state=0) for k in (0, 5)]
    effects = [dict(zip(fit.coef_names_, fit.coef_, strict=True)) for fit in fits]
    first = {name: value - effects[0]["month=l5"] for name, value in {**effects[0], "month=l0": 0.0}.items()}
    second = {**effects[1], "month=l5": 0.0}
    assert first.keys() == second.keys()
    assert max(abs(first[name] - second[name]) for name in first) < 0.02


@pytest.mark.parametrize(("levels", "power"), [(8, 0.0), (24, 0.0), (12, 0.7)])
def test_intervals_of_levels_hold_the_truth(levels, power):
    """Five seeded fits each. All effects share the baseline's error, so those of one fit hold or fail together."""
    shares = 1 / np.arange(1, levels + 1) ** power
    held = []
    for seed in range(100, 105):
        X, y, order, truth = with_factor(levels, 20_000, seed, shares=shares / shares.sum(), baseline=seed % levels)
        low, high = fitted(X, y, order, random_state=seed).conf_int()[1:levels].T
        held.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(held) > 0.85
    assert min(held) > 0.5


def test_a_level_without_rows_is_named_and_leaves_the_others_their_intervals():
    X, y, order, truth = with_factor(4, 8000, 1)
    fits = [fitted(X, y, order, random_state=seed) for seed in range(9)]
    with_level = [fitted(X, y, [*order, "l9 misspelt"], random_state=seed) for seed in range(9)]
    more = with_level[0]
    diagnostics = {each.code: each for each in more.diagnostics_}
    assert diagnostics["rare-level"].columns == ("month=l9 misspelt",)
    assert "spelling" in diagnostics["rare-level"].advice
    assert "collinear" not in diagnostics
    usual, wider = (np.median([fit.standard_errors_[:4] for fit in some], axis=0) for some in (fits, with_level))
    assert (wider < 1.3 * usual).all()
    assert more.standard_errors_[4] > 10 * more.standard_errors_[1]
    assert np.abs(more.coef_[:3] - truth).max() < 0.25


def test_the_joint_covariance_makes_a_test_of_a_factor():
    """Wald's statistic of eleven effects that are 0 is about 11 (seeded; beyond 31.3 with probability .1 %), and huge
    where the baseline differs. Without covariances it would be too small: all effects share the baseline's error.
    """
    X, y, order, _ = with_factor(12, 20_000, 7)

    def wald(response):
        fit = fitted(X, response, order, random_state=3)
        covariance = fit._errors.covariance[1:12, 1:12]
        return float(fit.coef_ @ np.linalg.solve(covariance, fit.coef_))

    assert wald(np.random.default_rng(0).standard_normal(len(y))) < 31.3
    assert wald(y) > 100
