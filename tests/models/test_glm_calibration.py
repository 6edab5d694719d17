"""Calibration of logistic and Poisson regressions: its sensitivity, what it finds, and where it is shown."""

import math

import numpy as np
import pandas as pd
import pytest

import dpem
from dpem.models._glm.diagnostics import IntervalResiduals, miscalibration
from dpem.models._glm.families import Bernoulli, Poisson
from dpem.models._glm.queries import Predictor
from dpem.report import render
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema


def fitted(kind, X, y, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-6, 6), "random_state": 0} | more
    if kind == "poisson":
        return dpem.DPPoissonRegression(**{"y_bounds": (0, 60)} | settings).fit(X, y)
    return dpem.DPLogisticRegression(**settings).fit(X, y)


def drawn(kind, n, curved, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    eta = 0.3 + 0.5 * X[:, 0] + 0.6 * curved * (X[:, 0] ** 2 - 1)
    if kind == "poisson":
        return X, rng.poisson(np.exp(np.minimum(eta, 3.0)))
    return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(30.0, 30.0, 2.0)])
def test_the_sensitivity_is_reached_and_never_exceeded(family):
    schema = Schema.of(["a", "b"], {"a": (-1.0, 1.0), "b": (-1.0, 1.0)}, {})
    predictor = Predictor(np.array([0.4, 2.0, -1.0]))
    query = IntervalResiduals(schema, family, predictor, np.array([-0.5, 0.4, 1.2]), np.array([0.5, 0.7, 0.7, 0.6]))
    rng = np.random.default_rng(1)
    rows = np.vstack([rng.uniform(-1, 1, (60, 2)), [[1, 1], [-1, -1], [1, -1], [-1, 1], [np.nan, 0]]])
    responses = (-1 / 3, 1 / 3, -1.0, 1.0, np.nan)
    each = np.array([query.contributions(numpy_api, row[None], np.array([u])) for row in rows for u in responses])
    worst = max(np.linalg.norm(each - one, axis=1).max() for one in each)
    assert 1.9 < worst <= query.bound.l2


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_without_privacy_intervals_hold_the_rows_means(kind):
    X, y = drawn(kind, 8000, curved=False)
    model = fitted(kind, X, y, epsilon=math.inf, random_state=None)
    found = model.calibration_
    assert len(found) == 10
    assert found.share.sum() == pytest.approx(1.0)
    assert (found.share * found.observed).sum() == pytest.approx(y.mean(), abs=0.02)
    assert (np.abs(found.observed - found.predicted) < 4 * found.standard_error).all()
    assert "calibration" not in [one.code for one in model.diagnostics_]


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_missing_square_is_a_warning_and_a_right_model_has_none(kind):
    right, wrong = (fitted(kind, *drawn(kind, 20_000, curved)) for curved in (False, True))
    assert "calibration" not in [one.code for one in right.diagnostics_]
    (warned,) = (one for one in wrong.diagnostics_ if one.code == "calibration")
    assert "A square" in warned.advice


def test_no_false_alarm_of_a_right_model_with_few_rows():
    """Where privacy noise moves the coefficients, intervals are off without the model being wrong."""
    warned = 0
    for seed in range(8):
        model = fitted("logistic", *drawn("logistic", 1500, curved=False, seed=seed), epsilon=0.5, random_state=seed)
        warned += "calibration" in [one.code for one in model.diagnostics_]
    assert warned <= 2


def test_a_difference_without_weight_is_no_warning():
    clear = np.array([[0.5, 0.50, 0.52, 0.001, 0.001], [0.5, 0.5, 0.70, 0.1, 0.1]])
    assert miscalibration(clear, Bernoulli(), ("predicted probability", "observed share")) == []
    assert (
        len(
            miscalibration(
                clear + np.array([0, 0, 0.2, 0, 0]), Bernoulli(), ("predicted probability", "observed share")
            )
        )
        == 1
    )


def test_the_price_is_within_the_fit_check_and_none_without_it():
    with_check, without = (
        dpem.plan("logistic-regression", n=5000, d=3, epsilon=1.0, delta=1e-6, check=own) for own in (True, False)
    )
    parts = {type(step).__name__: step.rho / with_check.price.rho for step in with_check.steps}
    assert parts["Check"] + parts["Calibrate"] == pytest.approx(0.05)
    assert not {"Check", "Calibrate"} & {type(step).__name__ for step in without.steps}
    model = fitted("logistic", *drawn("logistic", 2000, curved=False), check=False)
    assert model.calibration_.empty
    assert "Calibration" not in render(model)


def test_the_report_shows_the_picture_and_its_numbers(tmp_path):
    X, y = drawn("poisson", 6000, curved=False)
    model = fitted("poisson", pd.DataFrame(X, columns=["a", "b"]), y)
    dpem.save_model(model, tmp_path / "model.json")
    again = dpem.load_model(tmp_path / "model.json")
    assert again.calibration_.equals(model.calibration_)
    page = render(again)
    picture = page[page.index('<svg class="calibration"') :]
    assert picture[: picture.index("</svg>")].count("<circle") == len(model.calibration_)
    assert "observed mean" in page
