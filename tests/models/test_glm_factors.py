"""Factors in generalised linear models."""

import numpy as np
import pandas as pd
import pytest

from dpem import DPLogisticRegression, DPPoissonRegression
from dpem.models._glm.surrogate import _winners


@pytest.mark.parametrize("levels", [4, 7, 13, 31])
def test_surrogate_levels_have_the_released_shares(levels):
    rng = np.random.default_rng(levels)
    share = rng.dirichlet(np.ones(levels))[1:]
    found = np.bincount(_winners(rng.standard_normal((6000, levels - 1)), share), minlength=levels) / 6000
    # the shares of 6000 independent rows: five standard deviations
    assert np.all(np.abs(found[1:] - share) < 5 * np.sqrt(share * (1 - share) / 6000) + 1e-3)


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.32, 0.33, 0.34, 0.01]])
def test_a_factor_with_four_levels_is_fitted(shares):
    rng = np.random.default_rng(1)
    level, effect = rng.choice(4, 20_000, p=shares), np.array([0.0, -0.3, 0.3, 1.0])
    X = pd.DataFrame({"g": np.array(list("abcd"))[level], "x": rng.normal(0, 1, 20_000)})
    y = (rng.random(20_000) < 1 / (1 + np.exp(0.5 - effect[level] - 0.5 * X["x"].to_numpy()))).astype(int)
    known = {"levels": {"g": list("abcd")}, "bounds": {"x": (-6, 6)}}
    model = DPLogisticRegression(epsilon=1, delta=1e-6, random_state=0, **known).fit(X, y)
    truth, errors = np.array([*effect[1:], 0.5]), model.standard_errors_[1:]
    assert np.all(np.abs(model.coef_ - truth) < 4 * errors)
    assert np.all(errors[[0, 1, 3]] < 0.2)


def test_a_rare_value_of_a_0_1_column_that_noise_hides_gets_no_huge_coefficient():
    """3,000 rows at ε = .4, a column with 9 % ones: the histogram often misses them, and coefficients of −25 to 18 came
    out.
    """
    for seed in range(8):
        rng = np.random.default_rng(seed)
        two_valued = [rng.random(3000) < share for share in (0.5, 0.4, 0.09)]
        X = np.column_stack([rng.uniform(15, 49, 3000), rng.normal(6, 3, 3000), *two_valued])
        y = rng.poisson(np.exp(-1 + 0.06 * X[:, 0]))
        limits = {"bounds": ([15, 0, 0, 0, 0], [49, 20, 1, 1, 1]), "y_bounds": (0, 30)}
        model = DPPoissonRegression(epsilon=0.4, delta=1e-6, random_state=seed, **limits).fit(X, y)
        assert abs(model.coef_[-1]) < 6.5
