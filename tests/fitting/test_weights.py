"""Weights of rows: statsmodels' numbers without privacy, the record's sensitivity with it, every way in, refusals."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm

import dpem
from dpem.audit.neighbours import Table, neighbours
from dpem.audit.replay import compare, excess_cost
from dpem.audit.tape import Totalled, record
from dpem.fitting.weights import FindWeights, WeightMoments, Weights
from dpem.privacy import Account, Curator, PrivateNoise
from dpem.query import Bound
from dpem.tables import ArraySource
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema

pytestmark = pytest.mark.filterwarnings("ignore:expect little")
PRICE = {"epsilon": 1.0, "delta": 1e-6, "max_weight": 12.0, "random_state": 0}
KINDS = {
    "linear": (dpem.DPLinearRegression, {"y_bounds": (-15, 15)}),
    "logistic": (dpem.DPLogisticRegression, {}),
    "poisson": (dpem.DPPoissonRegression, {"y_bounds": (0, 60)}),
}


def drawn(kind, n=3000):
    """Columns, responses and weights that depend on a column."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 3))
    weights = np.minimum(rng.gamma(2, 1, n) * np.exp(0.4 * X[:, 0]), 12)
    eta = 0.3 + X @ np.array([0.5, -0.3, 0.0])
    if kind == "linear":
        return X, eta + rng.standard_normal(n) * np.exp(0.3 * X[:, 0]), weights
    if kind == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float), weights
    return X, rng.poisson(np.exp(eta)).astype(float), weights


def fitted(kind, X, y, sample_weight=None, **more):
    model, bounds = KINDS[kind]
    return model(**{**PRICE, "bounds": (-6, 6), **bounds, **more}).fit(X, y, sample_weight=sample_weight)


def statsmodels(kind, X, y, weights):
    rows = sm.add_constant(X)
    if kind == "linear":
        return sm.WLS(y, rows, weights=weights).fit(cov_type="HC1")
    family = sm.families.Binomial() if kind == "logistic" else sm.families.Poisson()
    return sm.GLM(y, rows, family=family, var_weights=weights).fit(cov_type="HC0")


@pytest.mark.parametrize("kind", KINDS)
def test_without_privacy_weighted_fits_equal_statsmodels_with_robust_errors(kind):
    X, y, weights = drawn(kind)
    model, reference = fitted(kind, X, y, weights, epsilon=math.inf), statsmodels(kind, X, y, weights)
    np.testing.assert_allclose(np.append(model.intercept_, model.coef_), reference.params, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_[:4], reference.bse, rtol=2e-3)
    unweighted = fitted(kind, X, y, epsilon=math.inf, max_weight=None)
    assert np.abs(unweighted.coef_ - reference.params[1:]).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_with_privacy_intervals_cover_the_weighted_coefficients(kind):
    X, y, weights = drawn(kind, 30_000)
    reference = statsmodels(kind, X, y, weights)
    model = fitted(kind, X, y, weights, epsilon=2.0)
    off = (np.append(model.intercept_, model.coef_) - reference.params) / model.standard_errors_[:4]
    assert np.abs(off).max() < 4
    assert (model.standard_errors_[:4] / reference.bse < 4).all()


def test_equal_weights_leave_the_estimates_unchanged():
    X, y, _ = drawn("logistic")
    plain = fitted("logistic", X, y, epsilon=math.inf, max_weight=None)
    same = fitted("logistic", X, y, np.full(len(X), 3.0), epsilon=math.inf)
    np.testing.assert_allclose(same.coef_, plain.coef_, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_replay_with_neighbours_that_differ_in_the_weight_too(kind):
    """The last column is the weight: neighbours replace it with the rest of the row, by numbers of any kind."""
    X, y, weights = drawn(kind, 150)
    table = Table("as drawn", np.column_stack([X, weights]), y)
    kind_of, bounds = KINDS[kind]
    estimator = kind_of(epsilon=1.0, delta=1e-6, bounds=(-6, 6), weights="x3", max_weight=3.0, **bounds)
    first = record(estimator, table.X, table.y)
    for query in (event for event in first.events if isinstance(event, Totalled)):  # the condition of the lemma
        assert query.bound.size_l2 <= query.bound.l2
        assert query.bound.size_linf <= query.bound.linf
    faults, compared = list(excess_cost(first, 1.0, 1e-6)), 0
    for other in list(neighbours(table, np.ones(4), missing=True, broken=True))[:: 12 if kind == "poisson" else 5]:
        faults += compare(first, record(estimator, other.X, other.y, frozen=first)).faults
        compared += 1
    assert faults == []
    assert compared > 1


def test_contributions_larger_than_the_sensitivity_are_refused_before_the_charge():
    """Such as contributions that all lie near one point: weights would move them by more than replacing a row does."""

    class Shifted(WeightMoments):
        bound = Bound(linf=0.1, l2=0.1, size_linf=1.0, size_l2=1.0)

    curator = Curator(ArraySource(np.ones((10, 2))), Account(1.0, 1e-6), PrivateNoise())
    query = Shifted(Schema.of(["x", "w"], {"x": (0, 1)}, {}, weight="w", max_weight=1.0))
    with pytest.raises(ValueError, match="contributions larger than its sensitivity"):
        Weights(0.5, 0.5).weighted_curator(curator).measure(query, rho=0.01)
    assert curator.account.releases == []


def test_replay_finds_a_weight_that_is_not_clipped(monkeypatch):
    def unclipped(self, xp, x):
        return xp.nan_to_num(x[:, -1]) / self.max_weight

    monkeypatch.setattr(Schema, "shares", unclipped)
    X, y, weights = drawn("logistic", 150)
    rows = np.column_stack([X, weights])
    estimator = dpem.DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=(-6, 6), weights="x3", max_weight=3.0)
    first = record(estimator, rows, y)
    rows = rows.copy()
    rows[7, 3] = 1e6
    assert compare(first, record(estimator, rows, y, frozen=first)).faults


def ways_in(tmp_path, frame):
    yield frame
    yield pl.from_pandas(frame)
    yield pa.Table.from_pandas(frame)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    yield dpem.read_table(tmp_path / "rows.csv")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    yield dpem.read_table(tmp_path / "rows.parquet")
    dask = pytest.importorskip("dask.dataframe")
    yield dask.from_pandas(frame, npartitions=3)


def test_a_named_column_of_every_source_with_a_formula(tmp_path):
    X, y, weights = drawn("logistic", 1500)
    frame = pd.DataFrame({"w": weights, "a": X[:, 0], "b": X[:, 1], "y": y})
    settings = {**PRICE, "epsilon": math.inf, "bounds": {"a": (-6, 6), "b": (-6, 6)}, "levels": {"y": [0, 1]}}
    expected = fitted("logistic", X[:, :2], y, weights, epsilon=math.inf).coef_
    for rows in ways_in(tmp_path, frame):
        model = dpem.DPLogisticRegression.from_formula("y ~ a + b", weights="w", **settings).fit(rows)
        np.testing.assert_allclose(model.coef_, expected, atol=1e-9)
        assert list(model.feature_names_in_) == ["a", "b"]


def test_the_weights_may_be_any_column_and_are_not_needed_to_predict():
    X, y, weights = drawn("linear")
    frame = pd.DataFrame({"a": X[:, 0], "w": weights, "b": X[:, 1]})
    model = fitted("linear", frame, y, weights="w", bounds={"a": (-6, 6), "b": (-6, 6)})
    again = fitted("linear", frame[["a", "b"]], y, weights, bounds={"a": (-6, 6), "b": (-6, 6)})
    np.testing.assert_allclose(model.coef_, again.coef_)
    assert model.coef_names_ == ("a", "b")
    np.testing.assert_allclose(model.predict(frame), model.predict(frame[["a", "b"]]))


def test_the_plan_has_the_weights_and_the_price_is_the_same():
    kind = dpem.DPLogisticRegression
    plain, plan = (kind(epsilon=1.0, delta=1e-6, max_weight=most).plan(5000, 3) for most in (None, 10.0))
    assert isinstance(plan.steps[0], FindWeights)
    assert math.fsum(step.rho for step in plan.steps) == pytest.approx(math.fsum(step.rho for step in plain.steps))
    assert "max_weight" in plan.prediction.assumed


def test_effective_rows_are_kishs():
    shares = np.array([1.0, 0.5, 0.5, 0.1])
    weights = Weights(float(shares.mean()), float((shares**2).mean() / shares.mean()))
    curator = weights.weighted_curator(type("Curator", (), {"n_rows": 4000})())
    assert curator.n_rows == round(4000 * shares.mean() ** 2 / (shares**2).mean())


def test_scaled_weights_lie_between_0_and_1():
    schema = Schema.of(["a", "w"], {"a": (0, 1)}, {}, weight="w", max_weight=4.0)
    odd = np.array([2.0, 9.0, -1.0, np.nan, np.inf, -np.inf])
    shares = schema.shares(numpy_api, np.column_stack([np.zeros(6), odd]))
    assert shares.tolist() == [0.5, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("more", "given", "message"),
    [
        ({"max_weight": None}, True, "max_weight must be given"),
        ({}, False, "neither weights nor sample_weight"),
        ({"weights": "x1"}, True, "must be None where weights names"),
        ({"weights": "z"}, False, "name of a column of the table, got 'z'"),
        ({"max_weight": 0.0}, True, "max_weight must be a positive"),
        ({"sparsity": 2}, True, "sparsity must be None"),
    ],
)
def test_refusals(more, given, message):
    X, y, weights = drawn("linear", 100)
    with pytest.raises(ValueError, match=message):
        fitted("linear", X, y, weights if given else None, **more)


def test_weights_of_another_length_or_for_rows_that_are_not_in_memory_are_refused(tmp_path):
    X, y, weights = drawn("linear", 100)
    with pytest.raises(ValueError, match="one weight for each of the 100 rows"):
        fitted("linear", X, y, weights[:9])
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match="name their column in weights"):
        fitted("linear", dpem.read_table(tmp_path / "rows.csv", target="y"), None, weights)
