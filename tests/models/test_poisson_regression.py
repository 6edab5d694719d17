"""Poisson regression: the reference is maximum likelihood, bounds hold, overdispersion is reported."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

import dpem
from dpem.models._glm.families import Poisson, mean_excess, mean_shortfall
from dpem.models._glm.queries import Predictor, Score
from dpem.models.poisson_regression.dispersion import PearsonSquares, dispersion_of
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema

BETA = np.array([0.4, -0.3, 0.0])


def simulate(n, seed, dispersion=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    X[:, 1] = rng.random(n) < 0.4
    mean = np.exp(0.5 + X @ BETA)
    if dispersion > 1:
        mean = rng.gamma(mean / (dispersion - 1), dispersion - 1)
    return X, rng.poisson(mean).astype(float)


def fit(X, y, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-5, 5), "y_bounds": (0, 60), "random_state": 0} | more
    return dpem.DPPoissonRegression(**settings).fit(X, y)


def test_without_privacy_it_is_maximum_likelihood():
    X, y = simulate(3000, 0, 2.0)
    model = fit(X, y, epsilon=math.inf, random_state=None, bounds=(-8, 8), y_bounds=(0, 1000))
    reference = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit(scale="X2")
    assert np.abs(np.append(model.intercept_, model.coef_) - reference.params).max() < 1e-6
    assert np.abs(model.standard_errors_ - reference.bse).max() < 1e-6
    assert model.dispersion_ == pytest.approx(reference.scale)


@pytest.mark.parametrize("kind", ["offset", "exposure"])
def test_offsets_and_exposures_are_those_of_statsmodels(kind):
    rng = np.random.default_rng(1)
    x, years = rng.standard_normal(4000), rng.uniform(0.5, 8.0, 4000)
    y = rng.poisson(years * np.exp(-0.5 + 0.4 * x))
    column = years if kind == "exposure" else np.log(years)
    frame = pd.DataFrame({"x": x, "time": column})
    bounds = {"x": (-6, 6), "time": (0.5, 8.0) if kind == "exposure" else (-0.7, 2.1)}
    same = {"bounds": bounds, "y_bounds": (0, 100), kind: "time"}
    exact = fit(frame, y, epsilon=math.inf, random_state=None, **same)
    reference = sm.GLM(y, sm.add_constant(x), family=sm.families.Poisson(), offset=np.log(years)).fit()
    assert [exact.intercept_, exact.coef_[0]] == pytest.approx(reference.params, abs=1e-6)
    assert exact.predict(frame) == pytest.approx(reference.fittedvalues, rel=1e-5)
    private = fit(frame, y, **same)
    assert list(private.summary().index) == ["intercept", "x"]
    error = np.array([private.intercept_, private.coef_[0]]) - reference.params
    assert (np.abs(error) < 5 * private.standard_errors_).all()


def test_intervals_hold_the_truth_and_overdispersion_is_diagnosed():
    """40 intervals, with fixed seeds; `python -m studies.glm` has hundreds."""
    truth, held, reported = np.append(0.5, BETA), [], []
    for seed in range(10):
        model = fit(*simulate(4000, 100 + seed, 1.0 if seed % 2 else 3.0), random_state=seed, check=False)
        low, high = model.conf_int().T
        held.append((low <= truth) & (truth <= high))
        reported.append("overdispersion" in [diagnostic.code for diagnostic in model.diagnostics_])
    assert np.mean(held) >= 0.85
    assert np.mean(reported[::2]) >= 0.8
    assert np.mean(reported[1::2]) <= 0.2


def test_the_mean_excess_and_shortfall_of_counts():
    counts = np.arange(400)
    for mu, phi in ((0.3, 1.0), (4.0, 1.0), (4.0, 3.0), (30.0, 5.0)):
        law = stats.poisson(mu) if phi == 1 else stats.nbinom(mu / (phi - 1), 1 / phi)
        for b in (0.5, 3.0, 7.7, 40.0):
            below = float(np.sum(law.pmf(counts) * np.maximum(b - counts, 0)))
            above = float(np.sum(law.pmf(counts) * np.maximum(counts - b, 0)))
            assert mean_shortfall(np.array(b), np.array(mu), phi) == pytest.approx(below, abs=1e-9)
            assert mean_excess(np.array(b), np.array(mu), phi) == pytest.approx(above, abs=1e-9)


def test_the_dispersion_of_simulated_counts_is_estimated():
    rng = np.random.default_rng(2)
    eta = rng.normal(0.5, 0.6, 20_000)
    mu = np.exp(eta)
    for phi in (1.0, 2.0, 6.0):
        y = rng.poisson(mu if phi == 1 else rng.gamma(mu / (phi - 1), phi - 1))
        capped = float(np.mean(np.minimum((y - mu) ** 2 / (mu + 0.5), 40.0)))
        assert dispersion_of(capped, 1e-6, eta, 40.0)[0] == pytest.approx(phi, rel=0.08)


def test_a_mean_of_squares_above_its_maximum_gives_the_dispersion_of_the_maximum():
    """Capped at 34, squares have at most the mean 3.6, at a dispersion of about 15, and 1.8 at 512."""
    phi, error = dispersion_of(30.0, 1.0, np.full(2000, 0.5), 34.0)
    assert 8 < phi < 30
    assert 1 < error < 15


def test_sensitivities_are_reached_and_never_exceeded():
    schema = Schema.of(["a", "b"], {"a": (-1.0, 1.0), "b": (-1.0, 1.0)}, {}, y_bounds=(0.0, 100.0))
    family, predictor = Poisson(50.0, 50.0, 1.5), Predictor(np.array([0.4, 1.0, -1.5]))
    whitening = np.array([[1.0, 0.3, 0.0], [0.0, 4.0, 1.0], [0.2, 0.0, 2.0]])
    rng = np.random.default_rng(3)
    rows = np.vstack([rng.uniform(-1, 1, (60, 2)), [[1, 1], [-1, -1], [1, -1], [-1, 1], [np.nan, 0]]])
    for query, bound in (
        (Score(schema, family, predictor, whitening, 0.5), 1.0),
        (PearsonSquares(schema, family, predictor, 0.5, 20.0), 20.0),
    ):
        each = [query.contributions(numpy_api, row[None], np.array([u])) for row in rows for u in (-1, -0.9, 1, np.nan)]
        each = np.array(each)
        worst = max(np.linalg.norm(each - row, axis=1).max() for row in each)
        assert 0.9 * bound < worst <= query.bound.l2


def test_a_saved_and_loaded_model_predicts_the_same(tmp_path):
    X, y = simulate(3000, 6)
    frame = pd.DataFrame(X, columns=["a", "b", "time"]).assign(time=np.exp(0.1 * X[:, 2]))
    bounds = {"a": (-5, 5), "b": (0, 1), "time": (0.5, 2.0)}
    model = fit(frame, y, bounds=bounds, exposure="time")
    dpem.save_model(model, tmp_path / "model.json")
    again = dpem.load_model(tmp_path / "model.json")
    assert again.predict(frame) == pytest.approx(model.predict(frame))
    assert again.summary().equals(model.summary())
    dpem.write_report(again, tmp_path / "report.html")
    assert "Poisson regression" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"y_bounds": (-3, 10)}, "y_bounds must not be negative"),
        ({"y_bounds": (-5, 5)}, "y_bounds must not be negative"),
        ({"offset": "nowhere"}, "offset must be the name of a numeric column"),
        ({"exposure": "x0"}, "bounds of the exposure 'x0' must be positive"),
        ({"offset": "x0", "exposure": "x1"}, "must not both be given"),
    ],
)
def test_wrong_arguments_are_refused_by_name(wrong, words):
    with pytest.raises(ValueError, match=words):
        fit(*simulate(100, 7), **wrong)


@pytest.mark.filterwarnings("ignore:expect little more than noise")
def test_predicted_counts_are_at_most_the_upper_bound():
    rng = np.random.default_rng(5)
    x = rng.normal(0, 1, 400)
    model = dpem.DPPoissonRegression(epsilon=0.1, delta=1e-6, bounds=(-9, 9), y_bounds=(0, 30), random_state=0)
    model.fit(x[:, None], rng.poisson(np.exp(0.8 * x)))
    far = np.array([[-9.0], [9.0], [np.nan]])
    assert np.nanmax(model.predict(far)) <= 30
    assert np.isnan(model.predict(far)[2])
    frame = model.get_prediction(far).summary_frame()
    assert frame["mean_ci_upper"].max() <= 30


def test_extreme_overdispersion_is_a_warning():
    rng = np.random.default_rng(6)
    x = rng.normal(0, 1, 6000)
    y = rng.negative_binomial(0.1, 0.1 / (0.1 + np.exp(3 + 0.5 * x)))
    model = dpem.DPPoissonRegression(epsilon=2.0, delta=1e-6, bounds=(-5, 5), y_bounds=(0, 2000), random_state=0)
    model.fit(x[:, None], y)
    assert [diagnostic.severity for diagnostic in model.diagnostics_ if diagnostic.code == "overdispersion"] == [
        "warning"
    ]


def test_rare_values_that_noise_hides_have_a_moderate_effect():
    """As months in prison of few arrested men: the effect of 12 of them was exp(22), which a bound only hides."""
    rng = np.random.default_rng(7)
    x = np.where(rng.random(2000) < 0.04, rng.uniform(1, 12, 2000), 0.0)
    y = rng.poisson(np.exp(-1 - 0.05 * x))
    effects = []
    for seed in range(15):
        model = dpem.DPPoissonRegression(epsilon=0.7, delta=1e-6, bounds=(0, 12), y_bounds=(0, 15), random_state=seed)
        effects.append(abs(12 * model.fit(x[:, None], y).coef_[0]))
    assert np.median(effects) < 3
    assert max(effects) < 20


def test_bounds_of_the_response_that_are_much_too_wide_are_named():
    X, y = simulate(4000, 8)
    for high, codes in ((60, []), (600, ["wide-bounds"])):
        model = fit(X, y, y_bounds=(0, high), check=False)
        assert [diagnostic.code for diagnostic in model.diagnostics_ if diagnostic.code == "wide-bounds"] == codes
