"""Robust standard errors of a linear regression: the sandwich, the parts of an error, and what they converge to."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpem import Budget, DPLinearRegression
from dpem.models.linear_regression.clipping import (
    ROW_EDGES,
    SCORE_EDGES,
    normal_lengths,
    optimal_clip,
    row_lengths,
    score_tails,
)
from dpem.models.linear_regression.diagnostics import diagnostics
from dpem.models.linear_regression.state import CurrentFit, ErrorShape, Estimate

statsmodels = pytest.importorskip("statsmodels.api")


def fitted(X, y, **settings):
    defaults = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-6, 6), "y_bounds": (-15, 15), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DPLinearRegression(**{**defaults, **settings}).fit(X, y)


def unequal(n, seed=0):
    """Errors whose variance grows with a column, and a curved relation: nothing the textbook assumes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    X[:, 2] = X[:, 2] > 0.5
    return X, 1 + X @ [0.8, -0.5, 0.4] + 0.2 * X[:, 0] ** 2 + np.sqrt(0.3 + 0.7 * X[:, 0] ** 2) * rng.standard_normal(n)


def test_without_privacy_the_covariance_is_that_of_hc1():
    X, y = unequal(2000)
    model = fitted(X, y, epsilon=math.inf)
    exact = statsmodels.OLS(y, statsmodels.add_constant(X)).fit(cov_type="HC1")
    np.testing.assert_allclose(model.standard_errors_[:4], exact.bse, rtol=1e-6)
    np.testing.assert_allclose(model._errors.covariance[:4, :4], exact.cov_params(), rtol=1e-5, atol=1e-10)


def test_without_privacy_a_factor_has_the_errors_of_hc1():
    rng = np.random.default_rng(1)
    X, y = unequal(3000)
    level = rng.choice(["a", "b", "c"], 3000, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame({"x": X[:, 0], "f": level})
    model = fitted(table, y, epsilon=math.inf, bounds={"x": (-6, 6)}, levels={"f": ["a", "b", "c"]})
    design = np.column_stack([np.ones(3000), X[:, 0], level == "b", level == "c"])
    exact = statsmodels.OLS(y, design).fit(cov_type="HC1")
    np.testing.assert_allclose(model.standard_errors_[:4], exact.bse, rtol=1e-6)


def test_the_parts_of_an_error_are_what_they_are_called():
    """Privacy and misfit are 0 without privacy, fall with ε and with n, and the squares of all parts add up."""
    X, y = unequal(4000)
    table = fitted(X, y, epsilon=math.inf).summary()
    assert (table[["privacy", "misfit"]].to_numpy() == 0).all()
    few, more = fitted(X, y).summary(), fitted(X, y, epsilon=20.0).summary()
    many = fitted(*unequal(60_000)).summary()
    assert (more.privacy[:4] < few.privacy[:4]).all()
    for part in ("sampling", "privacy"):
        assert (many[part][:4] < few[part][:4]).all()
    whole = few.sampling**2 + few.privacy**2 + few.misfit**2
    np.testing.assert_allclose(whole, few.standard_error**2, rtol=1e-9)


def test_with_many_rows_the_estimate_reaches_least_squares_within_a_small_error():
    """120,000 rows that are curved, with unequal variances: standard errors are at most twice HC1's, and all
    coefficients are within four of least squares (seeded).
    """
    X, y = unequal(120_000)
    exact = statsmodels.OLS(y, statsmodels.add_constant(X)).fit(cov_type="HC1")
    model = fitted(X, y)
    errors = model.standard_errors_[:4]
    assert (errors[1:] < 1.4 * exact.bse[1:]).all()
    off = np.append(model.intercept_, model.coef_) - exact.params
    assert (np.abs(off) < 4 * errors).all()
    sampling = model.summary().sampling.to_numpy()[1:4]
    assert np.abs(sampling / exact.bse[1:] - 1).max() < 0.15


def test_unequal_variances_are_in_the_intervals():
    """The slope of the column that the variance grows with: the classical standard error is .65 of the robust one, and
    would hold the truth in 80 %. At 95 % eight or fewer of twelve have probability .2 %.
    """
    held, errors = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((20_000, 2))
        y = x @ [0.8, -0.5] + np.sqrt(0.3 + 0.7 * x[:, 0] ** 2) * rng.standard_normal(20_000)
        model = fitted(x, y, random_state=seed)
        exact = statsmodels.OLS(y, statsmodels.add_constant(x)).fit(cov_type="HC1")
        errors.append(model.standard_errors_[1] / exact.bse[1])
        low, high = model.conf_int()[1]
        held.append(low <= 0.8 <= high)
    assert min(errors) > 0.95  # 1.07 to 1.3 in 30 fits
    assert sum(held) >= 9


def test_noise_alone_is_not_taken_for_tails_or_for_long_rows():
    """200 seeded histograms of normal scores and rows: clips hardly change."""
    rng, rows = np.random.default_rng(0), normal_lengths(5)
    beyond = np.concatenate([[1.0], rows.tail_probability(np.array(SCORE_EDGES) * math.sqrt(6)), [0.0]])
    longer = np.array([1.0, *(np.mean(rows.value > edge * math.sqrt(6)) for edge in ROW_EDGES), 0.0])
    plain = optimal_clip(20_000, 0.02, rows)
    for _ in range(200):
        noisy = -np.diff(beyond) + 0.003 * rng.standard_normal(len(SCORE_EDGES) + 1)
        tails = score_tails(noisy, 0.003, rows, 20_000, 30.0)
        assert optimal_clip(20_000, 0.02, rows, tails=tails).norm < 1.7 * plain.norm
        noisy = -np.diff(longer) + 0.01 * rng.standard_normal(len(ROW_EDGES) + 1)
        estimated = row_lengths(noisy, 0.01, 5, 20_000, 6, 30.0)
        assert 0.9 < optimal_clip(20_000, 0.02, estimated).norm / plain.norm < 1.2


def test_few_rows_with_most_of_the_leverage_do_not_make_the_steps_diverge():
    """Months of 60 towns, a few of them large: these rows have most of the information, and clipped second moments
    hardly see them. With an information several times too small the steps overshoot more and more.
    """
    off = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        town = np.exp(rng.normal(0, 1.6, 60))
        size = (town / town.max())[rng.integers(0, 60, 8000)]
        listings = np.minimum(40_000 * size * np.exp(rng.normal(0, 0.3, 8000)), 50_000)
        price = rng.normal(150, 30, 8000) + 20 * np.log(size + 0.01)
        sales = np.clip(0.15 * listings * np.exp(rng.normal(0, 0.35, 8000)) + 0.3 * price, 0, 10_000)
        X = np.column_stack([listings, price])
        exact = statsmodels.OLS(sales, statsmodels.add_constant(X)).fit().params
        model = fitted(X, sales, bounds=([0, 0], [50_000, 400]), y_bounds=(0, 10_000), random_state=seed)
        off.append((np.append(model.intercept_, model.coef_) - exact) / model.standard_errors_[:3])
    assert np.median(np.abs(off)) < 1.2


def test_symmetric_tails_hardly_widen_an_interval():
    """Errors with 3 degrees of freedom: the direction of what clips cut off is measured, and is none. Standard errors
    were twice those of least squares when it was only bounded.
    """
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20_000, 4))
        y = X @ [0.6, -0.4, 0.2, 0.0] + rng.standard_t(3, 20_000) / math.sqrt(3)
        exact = statsmodels.OLS(y, statsmodels.add_constant(X)).fit(cov_type="HC1")
        ratios.append(fitted(X, y, random_state=seed).standard_errors_[:5] / exact.bse)
    assert np.median(ratios) < 1.6


def test_the_correction_for_clipping_steepens_a_slope_that_skewed_errors_flatten(monkeypatch):
    """The tail lies along the fitted values, so clipping flattens the slope, by 1.1 standard errors of least squares on
    average. The correction takes back about a third: .27 to .45 with the same noise (means of eight, five draws).
    """
    corrected, uncorrected = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20_000, 2))
        y = X[:, 0] + np.exp(0.5 * X[:, 0]) * (rng.exponential(size=20_000) - 1)
        corrected.append(fitted(X, y, y_bounds=(-15, 40), random_state=seed).coef_[0])
        with monkeypatch.context() as patch:
            patch.setattr(CurrentFit, "expected_excess", lambda fit, norm: np.zeros(len(fit.prior)))
            uncorrected.append(fitted(X, y, y_bounds=(-15, 40), random_state=seed).coef_[0])
    assert np.mean(np.subtract(corrected, uncorrected)) > 0.1 * 0.013  # the HC1 standard error


def test_clips_widen_with_the_tails_that_a_histogram_shows():
    rows = normal_lengths(5)
    normal = -np.diff(np.concatenate([[1.0], rows.tail_probability(np.array(SCORE_EDGES) * math.sqrt(6)), [0.0]]))
    heavy = normal.copy()
    heavy[[0, SCORE_EDGES.index(16.0)]] += -0.02, 0.02  # scores between 11 and 16 standard deviations
    none, heavy_tails = (score_tails(shares, 0.001, rows, 20_000, 30.0) for shares in (normal, heavy))
    assert (
        optimal_clip(20_000, 0.02, rows, tails=heavy_tails).norm
        > 1.5 * optimal_clip(20_000, 0.02, rows, tails=none).norm
    )
    assert heavy_tails.excess(20.0, rows).root_mean_square > 10 * none.excess(20.0, rows).root_mean_square


def test_sigma_does_not_collapse_where_columns_are_many_for_the_rows():
    """37 columns, 4,000 rows, ε = 1: σ came out as 3e-5 with an interval to 58,033 in four fits of five."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((4000, 37))
        y = X @ np.full(37, 0.15) + rng.standard_normal(4000)
        model = fitted(X, y, random_state=seed)
        assert 0.3 < model.sigma_ < 3
        assert model.r_squared_ < 0.95
        assert model.conf_int()[-1, 1] < 10


def test_a_response_named_like_a_column_is_refused_and_nothing_is_spent():
    table = pd.DataFrame({"age": np.linspace(20, 60, 100)})
    budget = Budget(1.0, 1e-5)
    model = DPLinearRegression(epsilon=0.5, delta=1e-6, bounds={"age": (0, 100)}, budget=budget)
    with pytest.raises(ValueError, match="the name of a column of X, 'age'"):
        model.fit(table, 10 * table.age)
    assert budget.n_charges == 0


def codes(model):
    return {each.code: each for each in model.diagnostics_}


def test_a_response_above_its_bounds_gets_no_advice_of_narrower_ones():
    X, y = unequal(5000)
    diagnosed = codes(fitted(X, 100 + y, y_bounds=(0, 50)))
    assert "upper bound" in diagnosed["response-at-bound"].message
    assert not any("arrower" in each.advice for each in diagnosed.values())


def test_a_logarithm_is_proposed_only_where_it_can_be_taken():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 1))
    cost = np.exp(2 + 0.5 * X[:, 0] + rng.standard_normal(20_000))
    advice = codes(fitted(X, pd.Series(cost, name="cost"), y_bounds=(0, 500)))["non-normal-errors"].advice
    assert "logarithm" in advice
    logged = codes(fitted(X, pd.Series(cost, name="log_pay"), y_bounds=(0, 500)))["non-normal-errors"].advice
    below = codes(fitted(X, pd.Series(cost - 50, name="gain"), y_bounds=(-50, 450)))["non-normal-errors"].advice
    assert logged == below
    assert logged.startswith("Standard errors allow for it in part")


def test_tails_that_both_releases_show_are_reported_earlier():
    """The variance grows by 12 % with a wider clip, twice its standard error: that alone is no warning."""
    X, y = unequal(5000)
    model = fitted(X, y, y_bounds=(-50, 50))
    for by_lengths, reported in ((0.02, False), (0.15, True)):
        theta = replace(model.theta_, shape=ErrorShape(Estimate(0.0, 0.02), Estimate(0.12, 0.06), by_lengths))
        diagnosed = {each.code for each in diagnostics(theta, model.schema_, "y")}
        assert ("non-normal-errors" in diagnosed) == reported


def test_a_response_of_0_and_1_has_a_note_that_proposes_logistic_regression_and_a_part_has_a_warning():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 1))
    rare = (rng.random(20_000) < 0.04 * np.exp(0.3 * X[:, 0])).astype(float)
    note = codes(fitted(X, rare, y_bounds=(0, 1)))["non-normal-errors"]
    assert note.severity == "note"
    assert note.advice.endswith("Logistic regression suits a response of 0 and 1.")
    assert "response-at-bound" not in codes(fitted(X, 1 - rare, y_bounds=(0, 1)))
    part = np.clip(0.02 * np.exp(0.3 * X[:, 0] + rng.standard_normal(20_000)), 0, 1)
    warning = codes(fitted(X, part, y_bounds=(0, 1)))["non-normal-errors"]
    assert warning.severity == "warning"
    assert "Logistic" not in warning.advice


def test_a_rare_0_1_response_keeps_its_variance():
    """3 % of ones: the squares of their residuals are clipped, so σ collapsed, and a quarter of the intervals held."""
    held, sigmas = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((5000, 3))
        y = (rng.random(5000) < 0.03 * np.exp(0.3 * X[:, 0])).astype(float)
        model = fitted(X, y, y_bounds=(0, 1), random_state=seed)
        exact = statsmodels.OLS(y, statsmodels.add_constant(X)).fit().params
        low, high = model.conf_int()[:4].T
        held.append((low <= exact) & (exact <= high))
        sigmas.append(model.sigma_ / y.std())
    assert np.median(sigmas) == pytest.approx(1, abs=0.35)
    assert min(sigmas) > 0.4
    assert np.mean(held) > 0.7


def test_bounds_that_are_1000_times_too_wide_are_named_and_leave_the_other_columns_their_intervals():
    X, y = unequal(5000)
    plain = fitted(X, y)
    wide = fitted(X, y, bounds=([-6, -6000, -6], [6, 6000, 6]))
    assert codes(wide)["wide-bounds"].columns == ("x1",)
    assert (wide.standard_errors_[[1, 3]] < 2.5 * plain.standard_errors_[[1, 3]]).all()
    assert "wide-bounds" not in codes(plain)


def test_a_constant_column_is_named_and_its_slope_is_unknown():
    errors = []
    for seed in range(6):
        X, y = unequal(8000, seed)
        model = fitted(np.column_stack([X, np.ones(len(X))]), y, random_state=seed)
        assert codes(model)["collinear"].columns == ("x3",)
        errors.append(model.standard_errors_[4])
        assert errors[-1] > max(1, abs(model.coef_[3]))
        low, high = model.conf_int()[:5].T
        exact = np.append(statsmodels.OLS(y, statsmodels.add_constant(X)).fit().params, 0.0)
        assert ((low <= exact) & (exact <= high))[[0, 4]].all()
        assert (model.standard_errors_[1:4] < 0.2).all()
    assert np.median(errors) > 100


def test_intervals_hold_slopes_of_columns_with_bounds_100_times_too_wide():
    held = []
    for seed in range(6):
        X, y = unequal(8000, seed)
        exact = statsmodels.OLS(y, statsmodels.add_constant(X[:, :2])).fit().params
        model = fitted(X[:, :2], y, bounds=(-400, 800), random_state=seed)
        low, high = model.conf_int()[:3].T
        held.append((low <= exact) & (exact <= high))
        assert set(codes(model)["collinear"].columns) <= {"x0", "x1"}
    assert np.mean(held) > 0.9


def test_collinear_columns_are_named_and_not_the_others():
    """x0 + x1 = x2 but for a little; the five others have nothing to do with it."""
    named = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((6000, 8))
        X[:, 2] = X[:, 0] + X[:, 1] + 0.02 * X[:, 2]
        y = X[:, 3] + rng.standard_normal(6000)
        diagnosed = codes(fitted(X, y, bounds=(-8, 8), random_state=seed))
        if "collinear" in diagnosed:
            named.append(set(diagnosed["collinear"].columns))
    assert len(named) >= 3
    assert sum(columns <= {"x0", "x1", "x2"} for columns in named) >= len(named) - 1


def test_standard_errors_are_finite_where_rows_are_few_for_the_budget():
    """300 rows at ε = .1: the clip of the scores' variance lies above that of the scores."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 5))
        y = X @ np.full(5, 0.1) + rng.standard_t(2, 300)
        model = fitted(X, y, epsilon=0.1, y_bounds=(-600, 600), random_state=seed)
        assert np.isfinite(model.summary()["standard_error"]).all()


def test_levels_that_noise_hides_are_not_called_columns_with_bounds():
    """A level has no bounds to narrow, and many levels in few rows are not collinear."""
    rng = np.random.default_rng(0)
    industry = rng.choice(["trade", "mining", "farming"], 500)
    frame = pd.DataFrame({"industry": industry, "age": rng.uniform(20, 60, 500)})
    model = DPLinearRegression(
        epsilon=np.inf,
        delta=1e-6,
        bounds={"age": (20, 60)},
        levels={"industry": ["trade", "mining", "farming"]},
        y_bounds=(0, 10),
    ).fit(frame, rng.uniform(2, 8, 500))
    names = model.schema_.names
    for levels in (["industry=mining"], ["industry=mining", "industry=farming", "age"]):
        theta = replace(model.theta_, collinear=tuple(name in levels for name in names))
        found = {record.code: record for record in diagnostics(theta, model.schema_, "pay")}["collinear"]
        assert set(found.columns) == set(levels)
        assert "bounds" not in found.advice
        assert ("Few rows have 'industry=mining'" in found.message) == (len(levels) == 1)
        assert ("noise hides their separate effects" in found.message) == (len(levels) > 1)
