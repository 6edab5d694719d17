"""What plans of linear regressions say beforehand."""

import itertools
import math

import numpy as np

from dpem import DPLinearRegression
from dpem.fitting.model import Sizes
from dpem.models.linear_regression.planning import ASSUMED, BOUNDS, loss_on_tables, price_division


def predicted(n, epsilon, d=3, **more):
    settings = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-1, 1), **more}
    return DPLinearRegression(**settings).plan(n, d).prediction


def test_the_division_is_of_the_whole_price_and_leaves_most_of_it_to_the_scores():
    for n, rho, p, columns in itertools.product((2, 10**5, 10**10), (1e-12, 0.1, 1e20), (1, 200), (None, 1)):
        for check in (False, True):
            division = price_division(Sizes(n, 1.0, 1e-6, rho, 7, check), p, columns)
            assert math.isclose(math.fsum(division[1:]), rho, rel_tol=1e-15)
            assert min(division[1:-1]) > 0
            assert division.scores >= 0.39 * rho
            assert division.scores == max(division[1:])


def test_more_rows_or_epsilon_never_predict_worse():
    by_epsilon = [predicted(4096, epsilon) for epsilon in np.geomspace(0.5, 2.5, 6)]
    by_rows = [predicted(round(n), 0.7) for n in np.geomspace(2000, 9000, 6)]
    for predictions in (by_epsilon, by_rows):
        assert all(a.median > b.median for a, b in itertools.pairwise(predictions))
    for p in (predicted(500, 0.1), *by_rows, predicted(10**6, 10.0)):
        assert 0 < p.low < p.median < p.high


def test_a_plan_says_what_public_tables_lost():
    for p in (predicted(500, 0.1), predicted(20_000, 1.0), predicted(10**6, 10.0)):
        half, tenth = loss_on_tables(p.median)
        assert min(p.median, 1.0) <= half < tenth <= min(12 * half, 1.0) or half == tenth == 1.0
        assert f"half lost more than {half:.2g}, and one in ten more than {tenth:.2g}" in p.meaning


def test_predictions_come_true():
    """The median of 40 fits to rows as supposed lies near the plan's, as a median of 40 is known to within a fourth."""
    rng = np.random.default_rng(1)
    slopes = np.full(3, np.sqrt(ASSUMED / 3))
    lost = []
    for seed in range(40):
        x = rng.standard_normal((3000, 3))
        y = x @ slopes + np.sqrt(1 - ASSUMED) * rng.standard_normal(3000)
        ends = (-BOUNDS, BOUNDS)
        model = DPLinearRegression(epsilon=1.0, delta=1e-6, bounds=ends, y_bounds=ends, random_state=seed).fit(x, y)
        plain = np.linalg.lstsq(np.column_stack([np.ones(3000), x]), y, rcond=None)[0]
        lost.append((model.intercept_ - plain[0]) ** 2 + np.sum((model.coef_ - plain[1:]) ** 2))
    p = predicted(3000, 1.0)
    assert 0.65 < p.median / np.median(lost) < 1.5
    assert np.mean([p.low < loss < p.high for loss in lost]) > 0.75
