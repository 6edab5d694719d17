"""With one seed, every kind of rows gives the same model."""

import array_api_strict
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpem import Budget, DPStandardScaler
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.tables import ArraySource

N, D = 600, 6
BETA = np.array([0.8, 0.6, 0.0, 0.0, 0.0, 0.0])
QUICK = {"epsilon": 0.9, "delta": 1e-5, "sparsity": 2, "sigma": 0.5, "random_state": 3}


def table(estimator):
    rng = np.random.default_rng(0)
    z = rng.choice([-1.0, 1.0], size=N)
    if estimator is DPSymmetricMixture:
        return z[:, None] * BETA + 0.5 * rng.standard_normal((N, D)), None
    X = rng.standard_normal((N, D))
    if estimator is DPSymmetricRegression:
        return X, z * (X @ BETA) + 0.5 * rng.standard_normal(N)
    y = X @ BETA + 0.5 * rng.standard_normal(N)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def frame(X):
    return dd.from_pandas(pd.DataFrame(X, columns=[f"c{j}" for j in range(D)]), npartitions=3)


KINDS = {
    "fortran": lambda X, y: (np.asfortranarray(X), y),
    "read-only": lambda X, y: (_frozen(X), y),
    "source": lambda X, y: (ArraySource(X, y), None),
    "csr": lambda X, y: (sparse.csr_array(X), y),
    "csc": lambda X, y: (sparse.csc_array(X), y),
    "array API": lambda X, y: (array_api_strict.asarray(X), None if y is None else array_api_strict.asarray(y)),
    "array API, numpy response": lambda X, y: (array_api_strict.asarray(X), y),
    "dask array": lambda X, y: (da.from_array(X, chunks=(250, D)), None if y is None else da.from_array(y, chunks=250)),
    "dask frame": lambda X, y: (frame(X), None if y is None else da.from_array(y, chunks=200)),
}


def _frozen(X):
    X = X.copy()
    X.setflags(write=False)
    return X


@pytest.fixture(params=[DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression])
def case(request):
    estimator = request.param
    extra = {"start": BETA} if estimator is DPSymmetricRegression else {}
    X, y = table(estimator)
    return estimator, extra, X, y, estimator(**QUICK, **extra).fit(X, y)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model_from_every_kind_of_rows(case, kind):
    """The noise scale depends on the slack, whose relative difference between kinds is about 10⁻¹¹."""
    estimator, extra, X, y, expected = case
    model = estimator(**QUICK, **extra).fit(*KINDS[kind](X, y))
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9, atol=0)
    assert model.n_features_in_ == D
    assert [r.query for r in model.releases_] == [r.query for r in expected.releases_]
    if kind == "dask frame":
        assert list(model.feature_names_in_) == [f"c{j}" for j in range(D)]


@pytest.mark.parametrize("kind", ["source", "csr", "array API"])
def test_predictions_from_every_kind_of_rows(case, kind):
    _, _, X, y, model = case
    rows, _ = KINDS[kind](X, y)
    np.testing.assert_allclose(model.predict(rows), model.predict(X), rtol=1e-12, atol=1e-12)
    given = () if y is None else (y,)
    np.testing.assert_allclose(
        model.score_samples(rows, *given), model.score_samples(X, *given), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("kind", ["source", "array API", "dask array"])
def test_a_pipeline_with_a_private_scaler(kind):
    X, _ = table(DPSymmetricMixture)

    def fitted(rows):
        scaler = DPStandardScaler(epsilon=5.0, delta=1e-5, bounds=(-4, 4), random_state=1)
        return make_pipeline(scaler, DPSymmetricMixture(**QUICK)).fit(rows)

    expected = fitted(X)
    pipeline = fitted(KINDS[kind](X, None)[0])
    np.testing.assert_allclose(pipeline[-1].coef_, expected[-1].coef_, rtol=1e-9, atol=0)


def refused(X, y=None, estimator=DPMissingRegression):
    budget = Budget(epsilon=10.0, delta=0.1)
    model = estimator(**{**QUICK, "random_state": None}, budget=budget)
    with pytest.raises(ValueError, match=r".") as refusal:
        model.fit(X, y)
    assert budget.n_charges == 0
    assert not hasattr(model, "coef_")
    message = str(refusal.value)
    assert "\n" not in message
    return message


class TestRefusals:
    def test_a_response_beside_a_source(self):
        X, y = table(DPMissingRegression)
        assert refused(ArraySource(X, y), y).startswith("y must be None if X is an opened table")

    def test_a_source_without_a_response(self):
        X, _ = table(DPMissingRegression)
        assert refused(ArraySource(X)) == "target must be given when the table is opened: this model has a response."

    def test_a_dask_table_to_predict(self, case):
        with pytest.raises(ValueError, match="map_blocks"):
            case[4].predict(da.ones((4, D)))

    def test_a_source_of_another_width_to_predict(self, case):
        with pytest.raises(ValueError, match="X has 2 columns, but 6 were fitted"):
            case[4].predict(ArraySource(np.ones((4, 2))))

    def test_a_source_with_its_columns_in_another_order_to_predict(self, case):
        _, _, X, _, model = case
        source = ArraySource(X)
        source.feature_names = ["b", "a", "c", "d", "e", "f"]
        named = clone(model).fit(pd.DataFrame(X, columns=list("abcdef")), case[3])
        with pytest.raises(ValueError, match="in another order"):
            named.predict(source)
