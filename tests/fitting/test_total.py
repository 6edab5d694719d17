"""Every table of numbers has an answer, no warning or refusal depends on an entry, and a failed fit changes nothing."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpem import Budget, BudgetExceeded, DPGaussianMixture, DPLatentClass, DPLinearRegression, DPStandardScaler
from dpem.models.logistic_regression import DPLogisticRegression
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression

N, D = 800, 3
PRICE = {"epsilon": 1.0, "delta": 1e-4}
FITS = {
    "mixture": DPSymmetricMixture(**PRICE, sigma=1.0, start=[1.0, 0.0, 0.0], n_iter=2),
    "mixture, sigma unknown": DPSymmetricMixture(epsilon=9.9, delta=1e-4, start=[1.0, 0.0, 0.0], n_iter=2),
    "mixture, start unknown": DPSymmetricMixture(epsilon=9.9, delta=1e-4, sigma=1.0, n_iter=2),
    "regressions": DPSymmetricRegression(epsilon=9.9, delta=1e-4, sigma=1.0, n_iter=2),
    "missing": DPMissingRegression(**PRICE, sparsity=2, sigma=1.0, n_iter=2),
    "missing, paper": DPMissingRegression(**PRICE, sparsity=2, sigma=1.0, method="published"),
    "scaler": DPStandardScaler(**PRICE, bounds=(-3, 3)),
    "pipeline": DPSymmetricMixture(**PRICE, sigma=1.0, start=[1.0, 0.0, 0.0], n_iter=2),
}
every_fit = pytest.mark.parametrize("name", FITS)

ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 1.7e308, "-huge": -1.7e308, "tiny": 5e-324}


def table(dtype=np.float64):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, D)) + np.outer(rng.choice([-1, 1], N), [1.5, 0.0, 0.0])
    return X.astype(dtype), X[:, 0] + rng.standard_normal(N)


def fitted(name, X, y):
    """All that a user sees of a fit except noisy numbers: whether it ends with an error, and its messages."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if name == "pipeline":
            scaler = DPStandardScaler(**PRICE, bounds=(0, 1e-300))  # scaled by it, an ordinary entry overflows
            make_pipeline(scaler, clone(FITS[name])).fit(X)
        else:
            clone(FITS[name]).fit(X, y)
    return [str(warning.message) for warning in caught]


@every_fit
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_entry_changes_no_message(name, odd):
    X, y = table()
    usual = fitted(name, X, y)
    X[7], y[9] = ODD[odd], ODD[odd]
    X[11, 1] = ODD[odd]
    assert fitted(name, X, y) == usual


@every_fit
@pytest.mark.parametrize("odd", ["nan", "inf", "huge"])
def test_a_table_of_odd_entries_can_be_fitted(name, odd):
    X, y = table()
    X[:], y[:] = ODD[odd], ODD[odd]
    with np.errstate(
        over="raise", invalid="raise", divide="raise"
    ):  # nor does it depend on how the caller wants to be warned
        fitted(name, X, y)


@pytest.mark.parametrize("estimator", [DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression])
def test_a_fitted_model_gives_no_message_about_an_odd_entry(estimator):
    X, y = table()
    model = estimator(**PRICE, sigma=1.0, start=[1.0, 0.0, 0.0], n_iter=2).fit(X, y)
    rows = X[:4].copy()
    missing = np.nan if estimator is DPMissingRegression else 0.0
    rows[1], rows[2, 1], rows[3, 0] = np.nan, np.inf, -np.inf
    plain = np.where(np.isfinite(rows), rows, missing)
    np.testing.assert_array_equal(model.predict(rows), model.predict(plain))
    assert np.isfinite(model.predict(rows)).all()


def seen(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.mark.parametrize("name", [name for name in FITS if name != "pipeline"])
def test_a_failed_refit_keeps_the_earlier_fit(name):
    """A mixture of the attributes of two fits would state a guarantee that neither has."""
    X, y = table()
    model = clone(FITS[name]).fit(X, y)
    before = seen(model)
    assert {"guarantee_", "releases_", "n_features_in_"} <= before.keys()
    with pytest.raises(BudgetExceeded):
        model.set_params(budget=Budget(1e-3, 1e-9), **({} if name == "scaler" else {"start": "equal"})).fit(
            X[:-1], y[:-1]
        )
    with pytest.raises(BudgetExceeded):  # other columns, and a budget that is spent
        model.fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), y)
    after = seen(model)
    assert after.keys() == before.keys()
    assert all(after[key] is before[key] for key in before)


def test_a_fit_that_raises_keeps_the_earlier_fit(monkeypatch):
    X, _ = table()
    model = clone(FITS["mixture, sigma unknown"]).fit(X)
    before = seen(model)
    monkeypatch.setattr("dpem.paper.estimators.base.run_steps", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        model.set_params(sigma=7.0).fit(X)
    assert seen(model).keys() == before.keys()
    assert all(seen(model)[key] is before[key] for key in before)


GENERAL = {
    "linear": (DPLinearRegression(**PRICE, bounds=dict.fromkeys("abc", (-4, 4)), y_bounds=(-4, 4), check=False), True),
    "logistic": (DPLogisticRegression(**PRICE, bounds=dict.fromkeys("abc", (-4, 4)), check=False), True),
    "groups": (DPGaussianMixture(2, **PRICE, bounds=dict.fromkeys("abc", (-4, 4)), check=False), False),
    "classes": (DPLatentClass(2, **PRICE, levels={name: [0, 1] for name in "abc"}, check=False), False),
}


@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.parametrize(
    "odd", [math.nan, -math.inf, 1.7e308, "secret", 10**400], ids=["nan", "inf", "huge", "text", "long"]
)
def test_every_general_model_fits_odd_entries(name, odd):
    """A fit ends with finite errors, whatever one entry of X and one of y are, and never quotes an entry."""
    estimator, has_response = GENERAL[name]
    X, y = table()
    X, y = (X > 0).astype(float) if name == "classes" else X, (y > 0).astype(float)
    frame, y = pd.DataFrame(X, columns=list("abc")).astype(object), y.astype(object)
    frame.iat[7, 1], y[9] = odd, odd
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = clone(estimator).set_params(random_state=0).fit(frame, y if has_response else None)
    assert np.isfinite(model.standard_errors_).all()
    assert "secret" not in str([warning.message for warning in caught])
