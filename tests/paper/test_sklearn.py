"""The paper's estimators as scikit-learn estimators: parameters, tables, pipelines."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpem import Budget
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.tables import ArraySource
from studies.paper.settings import Setting

ALL = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)

#: A fit whose plan has no free settings.
QUICK = {"epsilon": 0.5, "delta": 1e-5, "method": "published", "sparsity": 2, "start": "equal", "sigma": 0.5}


def quick(estimator, **changes):
    return estimator(**{**QUICK, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def data():
    """Rows, and responses that follow both regressions closely enough."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 4))
    return X, X[:, 0] + 0.5 * rng.standard_normal(120)


@pytest.mark.parametrize("estimator", ALL)
def test_parameters_survive_clone_and_pickle(estimator, data):
    start = np.array([0.1, 0.2, 0.3, 0.4])
    given = {
        **{"epsilon": 0.25, "delta": 1e-6, "sparsity": 2, "sigma": 0.4, "signal": 2.0, "method": "published"},
        **{"start": start, "n_iter": 3, "step_size": 0.6, "clip": 1.5, "random_state": 4},
    }
    model = estimator(**given).fit(*data)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    for name, value in given.items():
        np.testing.assert_array_equal(copy.get_params()[name], value)
        np.testing.assert_array_equal(model.get_params()[name], value)  # fit changed nothing
    assert start.tolist() == [0.1, 0.2, 0.3, 0.4]
    np.testing.assert_array_equal(copy.fit(*data).coef_, model.coef_)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.coef_, model.coef_)
    assert back.guarantee_ == model.guarantee_
    assert back.plan_ == model.plan_


@pytest.mark.parametrize("estimator", ALL)
def test_pandas_names_are_kept_and_compared(estimator, data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    plain = quick(estimator).fit(X, y)
    named = quick(estimator).fit(frame, pd.Series(y))
    assert list(named.feature_names_in_) == ["a", "b", "c", "d"]
    assert named.n_features_in_ == 4
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_allclose(named.coef_, plain.coef_, rtol=1e-12)  # a frame is stored by columns: sums round anew
    np.testing.assert_allclose(named.predict(frame), plain.predict(X), rtol=1e-12)
    with pytest.raises(
        ValueError, match="X lacks column 'a' of the fit, and has column 'z', which the fit did not have"
    ):
        named.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("estimator", ALL)
def test_the_table_is_neither_copied_nor_converted(estimator, dtype, data, monkeypatch):
    X, y = data[0].astype(dtype), data[1]
    seen = []

    class Watched(ArraySource):
        def __init__(self, rows, response=None, **settings):
            seen.append(rows)
            super().__init__(rows, response, **settings)

    monkeypatch.setattr("dpem.tables.inputs.ArraySource", Watched)
    model = quick(estimator).fit(X, y)
    assert seen[0].dtype == dtype
    assert np.shares_memory(seen[0], X)
    assert model.coef_.dtype == np.float64
    # float32 rows are the same rows up to their rounding, which is paid for with a little more noise
    np.testing.assert_allclose(model.coef_, quick(estimator).fit(data[0], y).coef_, rtol=1e-3)


@pytest.mark.parametrize("estimator", ALL)
def test_nothing_works_before_fit_nor_after_a_refused_one(estimator, data):
    X, y = data
    model = quick(estimator, random_state=None, budget=Budget(epsilon=1e-3, delta=1e-9))
    with pytest.raises(RuntimeError):
        model.fit(X, y)
    second = () if estimator is DPSymmetricMixture else (y,)
    for fresh in (model, quick(estimator)):
        with pytest.raises(NotFittedError):
            fresh.predict(X)
        with pytest.raises(NotFittedError):
            getattr(fresh, "impute" if estimator is DPMissingRegression else "predict_proba")(X, *second)
        with pytest.raises(NotFittedError):
            fresh.score_samples(X, *second)
        with pytest.raises(NotFittedError):
            fresh.sample(3 if estimator is DPSymmetricMixture else X)
        assert not hasattr(fresh, "means_")


def test_pipeline_and_cross_validation():
    setting = Setting("missing-regression", n=600, d=5, s=2, epsilon=2.0)
    X, y = setting.draw(np.random.default_rng(0))
    pipeline = make_pipeline(StandardScaler(), setting.estimator(random_state=0))
    scores = cross_val_score(pipeline, 7 * X + 3, y, cv=3)
    # R² is 0.8 for the truth; the seeds are fixed
    assert scores.shape == (3,)
    assert scores.min() > 0.5
    assert pipeline.fit(7 * X + 3, y).predict(7 * X + 3).shape == (600,)
