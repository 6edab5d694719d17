"""Budgets shared by fits: every fit is charged before its first query, or refused."""

import math

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpem import Budget, BudgetExceeded
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.paper.published import printed_price
from dpem.privacy import Price, largest_price
from dpem.tables import ArraySource

ALL = (DPSymmetricMixture, DPSymmetricRegression, DPMissingRegression)
#: A fit whose plan has no free settings.
QUICK = {"epsilon": 0.5, "delta": 1e-5, "method": "published", "sparsity": 2, "sigma": 1.0, "start": "equal"}
#: A fit with a plan; there are few sizes, so that few plans are made.
IMPROVED = {"epsilon": 0.5, "delta": 1e-5, "sigma": 0.5, "start": "equal"}


def room_for(fits, settings=QUICK):
    """A budget that admits exactly this number of fits; their prices are added in zCDP and converted at one fit's δ."""
    epsilon, delta = settings["epsilon"], settings["delta"]
    one = printed_price(epsilon, delta, 2) if settings is QUICK else largest_price(epsilon, delta, gaussian=True)
    return Budget(Price(one.rho * fits).epsilon(delta) * (1 + 1e-6), delta)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    return X, X[:, 0] + 0.5 * rng.standard_normal(300)


@pytest.fixture
def labels(monkeypatch):
    """The labels of the queries that fits sent."""
    queries = []

    class Watched(ArraySource):
        def total(self, query):
            queries.append(query.label)
            return super().total(query)

        def split(self, parts):
            return [Watched(part._X, part._y) for part in super().split(parts)]

    monkeypatch.setattr("dpem.tables.inputs.ArraySource", Watched)
    return queries


@pytest.mark.parametrize("settings", [QUICK, IMPROVED], ids=["published", "improved"])
@pytest.mark.parametrize("estimator", ALL)
def test_fits_share_a_budget(estimator, settings, data, labels):
    budget = room_for(2, settings)
    first, second, third = (estimator(**settings, budget=budget) for _ in range(3))
    first.fit(*data)
    assert budget.n_charges == 1
    assert 0 < budget.spent_epsilon <= 0.5
    first.fit(*data)  # a second fit of the same object is a second fit
    assert budget.n_charges == 2
    assert budget.spent_epsilon <= budget.epsilon < 1.0
    before = len(labels)
    assert before >= 2
    with pytest.raises(BudgetExceeded, match="Nothing was computed"):
        second.fit(*data)
    assert len(labels) == before
    assert budget.n_charges == 2
    assert not hasattr(second, "coef_")
    third.set_params(budget=None).fit(*data)
    assert budget.n_charges == 2


def test_what_is_charged_is_what_is_guaranteed(data):
    budget = Budget(epsilon=10.0, delta=1e-3)
    fit = DPMissingRegression(**IMPROVED, budget=budget).fit(*data)
    (charge,) = budget._charges
    epsilon, delta, price = charge.epsilon, charge.delta, charge.price
    assert (epsilon, delta) == (fit.guarantee_.epsilon, fit.guarantee_.delta) == (0.5, 1e-5)
    assert price == fit.plan_.price
    assert price.delta(epsilon) <= delta


@pytest.mark.parametrize("estimator", ALL)
def test_the_charge_comes_before_the_data(estimator, data, monkeypatch):
    budget = room_for(1)

    class Broken(ArraySource):
        def total(self, query):
            assert budget.n_charges == 1  # charged already
            raise OSError("the disk is gone")

        def split(self, parts):
            return [Broken(part._X, part._y) for part in super().split(parts)]

    monkeypatch.setattr("dpem.tables.inputs.ArraySource", Broken)
    with pytest.raises(OSError, match="the disk is gone"):
        estimator(**QUICK, budget=budget).fit(*data)
    assert budget.n_charges == 1  # and stays charged: some data may have been queried


@pytest.mark.parametrize("estimator", ALL)
def test_the_reference_fit_has_no_place_in_a_budget(estimator, data, labels):
    budget = Budget(epsilon=1e6, delta=0.5)
    with pytest.raises(BudgetExceeded):
        estimator(**{**QUICK, "epsilon": math.inf}, budget=budget).fit(*data)
    assert labels == []
    assert budget.n_charges == 0


def test_cross_validation_stops_when_the_budget_is_spent(data, labels):
    budget = room_for(2)
    with pytest.raises(BudgetExceeded):
        cross_val_score(DPMissingRegression(**QUICK, n_iter=1, budget=budget), *data, cv=3, error_score="raise")
    assert budget.n_charges == 2
    assert len(labels) == 2  # one query a fit, and none for the third


@pytest.mark.parametrize("fits", [0.5, 4, 6])
def test_grid_search_raises_when_the_budget_is_spent(fits, data, labels):
    budget = room_for(fits)
    model = DPSymmetricMixture(**QUICK, n_iter=1, budget=budget)
    search = GridSearchCV(model, {"step_size": [0.3, 0.6]}, cv=3, n_jobs=1, error_score="raise")
    with pytest.raises(BudgetExceeded):
        search.fit(data[0])
    assert budget.n_charges == len(labels) == math.floor(fits)
    assert not hasattr(getattr(search, "best_estimator_", model), "coef_")
