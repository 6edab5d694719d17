"""Calibration of logistic and Poisson regressions: sensitivity, warnings, price, and the report."""

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


def fit(kind, X, y, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-6, 6), "random_state": 0} | more
    if kind == "poisson":
        return dpem.DPPoissonRegression(**{"y_bounds": (0, 60)} | settings).fit(X, y)
    return dpem.DPLogisticRegression(**settings).fit(X, y)


def simulate(kind, n, curved, seed=0):
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
    worst = max(np.linalg.norm(each - row, axis=1).max() for row in each)
    assert 1.9 < worst <= query.bound.l2


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_without_privacy_calibration_shows_the_means_of_the_rows(kind):
    X, y = simulate(kind, 8000, curved=False)
    model = fit(kind, X, y, epsilon=math.inf, random_state=None)
    table = model.calibration_
    assert len(table) == 10
    assert table.share.sum() == pytest.approx(1.0)
    assert (table.share * table.observed).sum() == pytest.approx(y.mean(), abs=0.02)
    assert (np.abs(table.observed - table.predicted) < 4 * table.standard_error).all()
    assert "calibration" not in [diagnostic.code for diagnostic in model.diagnostics_]


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_missing_square_gives_a_warning_and_a_correct_model_none(kind):
    correct, misspecified = (fit(kind, *simulate(kind, 20_000, curved)) for curved in (False, True))
    assert "calibration" not in [diagnostic.code for diagnostic in correct.diagnostics_]
    (warning,) = (diagnostic for diagnostic in misspecified.diagnostics_ if diagnostic.code == "calibration")
    assert "A square" in warning.advice


def test_a_correct_model_with_few_rows_gives_no_false_alarm():
    """Privacy noise of the coefficients moves the means of intervals, though the model is correct."""
    warned = 0
    for seed in range(8):
        model = fit("logistic", *simulate("logistic", 1500, curved=False, seed=seed), epsilon=0.5, random_state=seed)
        warned += "calibration" in [diagnostic.code for diagnostic in model.diagnostics_]
    assert warned <= 2


def test_a_small_or_insignificant_difference_gives_no_warning():
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


def test_calibration_is_paid_for_by_the_fit_check():
    with_check, without = (
        dpem.plan("logistic-regression", n=5000, d=3, epsilon=1.0, delta=1e-6, check=check) for check in (True, False)
    )
    parts = {type(step).__name__: step.rho / with_check.price.rho for step in with_check.steps}
    assert parts["Check"] + parts["Calibrate"] == pytest.approx(0.05)
    assert not {"Check", "Calibrate"} & {type(step).__name__ for step in without.steps}
    model = fit("logistic", *simulate("logistic", 2000, curved=False), check=False)
    assert model.calibration_.empty
    assert "Calibration" not in render(model)


def test_the_report_shows_the_calibration_plot_and_table(tmp_path):
    X, y = simulate("poisson", 6000, curved=False)
    model = fit("poisson", pd.DataFrame(X, columns=["a", "b"]), y)
    dpem.save_model(model, tmp_path / "model.json")
    again = dpem.load_model(tmp_path / "model.json")
    assert again.calibration_.equals(model.calibration_)
    page = render(again)
    picture = page[page.index('<svg class="calibration"') :]
    assert picture[: picture.index("</svg>")].count("<circle") == len(model.calibration_)
    assert "observed mean" in page
