"""A search whose fits and choice are private together; scikit-learn's search is not."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from dpem import (
    Budget,
    BudgetExceeded,
    DPGaussianMixture,
    DPGridSearch,
    DPLatentClass,
    DPLinearRegression,
    DPMixtureRegression,
    save_model,
)
from dpem.audit.neighbours import Table, neighbours
from dpem.fitting.search import CandidateScores
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.privacy import Price, largest_price, total_price
from dpem.query import Chunk
from dpem.report import render
from dpem.tables import ArraySource

N, D = 4000, 3
BETA = np.array([1.0, 0.0, 0.0])
PRICE = {"epsilon": 2.0, "delta": 1e-5}
MODELS = {
    "mixture": DPSymmetricMixture(start=list(BETA), n_iter=2),
    "regressions": DPSymmetricRegression(start=list(BETA), n_iter=2),
    "missing": DPMissingRegression(sparsity=2, n_iter=2),
    "paper": DPSymmetricMixture(start=list(BETA), method="published", sparsity=2),
}
GRID = {"sigma": [0.5, 8.0]}


def table(name, n=N):
    rng = np.random.default_rng(5)
    z, noise = rng.choice([-1, 1], n), 0.5 * rng.standard_normal(n)
    if name in ("mixture", "paper"):
        return (np.outer(z, BETA) + 0.5 * rng.standard_normal((n, D)),)
    X = rng.standard_normal((n, D))
    fitted = X @ BETA
    if name == "missing":
        return np.where(rng.random(X.shape) < 0.1, np.nan, X), fitted + noise
    return X, z * fitted + noise


@pytest.mark.parametrize("name", MODELS)
def test_the_better_candidate_is_chosen_at_one_price(name):
    budget = Budget(**PRICE)
    search = DPGridSearch(MODELS[name], GRID, **PRICE, budget=budget).fit(*table(name))
    assert search.best_params_ == {"sigma": 0.5}
    assert search.best_estimator_.sigma_ == 0.5
    assert len(search.candidates_) == 2
    np.testing.assert_array_equal(search.predict(table(name)[0]), search.best_estimator_.predict(table(name)[0]))
    assert budget.n_charges == 1
    with pytest.raises(BudgetExceeded):
        DPGridSearch(MODELS[name], GRID, **PRICE, budget=budget).fit(*table(name))

    whole = largest_price(*PRICE.values(), gaussian=False)
    assert budget._charges[0].price == whole
    assert search.guarantee_.price == search.best_estimator_.guarantee_.price == whole
    assert (search.guarantee_.epsilon, search.guarantee_.delta, search.guarantee_.private) == (2.0, 1e-5, True)
    fits = math.fsum(candidate.guarantee_.price.rho for candidate in search.candidates_)
    (choice,) = [release for release in search.releases_ if "candidates" in release.query]
    assert choice.price.rho == pytest.approx(0.1 * whole.rho)
    assert fits + choice.price.rho <= whole.rho * (1 + 1e-9)
    if name != "paper":  # which spends less than (epsilon, delta) are worth
        assert fits + choice.price.rho == pytest.approx(whole.rho, rel=1e-6)
    spent = math.fsum(total_price(list(candidate.releases_)).rho for candidate in search.candidates_)
    assert spent <= fits * (1 + 1e-9)


def test_a_candidate_that_costs_more_than_its_share_stops_the_search(monkeypatch):
    right = DPGridSearch._fitted

    def dearer(self, i, *rest):
        fit = right(self, i, *rest)
        if i == 1:
            fit.guarantee_ = replace(fit.guarantee_, price=Price(2 * fit.guarantee_.price.rho))
        return fit

    monkeypatch.setattr(DPGridSearch, "_fitted", dearer)
    with pytest.raises(RuntimeError, match="cost more than its share"):
        DPGridSearch(MODELS["mixture"], GRID, **PRICE).fit(*table("mixture"))


def scores(models):
    return CandidateScores(tuple(model.score_samples for model in models))


@pytest.mark.parametrize("name", ["regressions", "missing"])
def test_extreme_rows_change_scores_within_the_bound(name):
    X, y = table(name, 60)
    models = [MODELS[name].__class__(**PRICE, sigma=s, start=list(BETA), n_iter=1) for s in (0.5, 2.0, 8.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        query = scores([model.fit(X, y) for model in models])
    first = query.sum(Chunk(X, y))
    worst = 0.0
    for kind in neighbours(Table("as drawn", X, y), BETA, missing=True, broken=True):
        change = np.abs(query.sum(Chunk(kind.X, kind.y)) - first)
        assert np.all(change <= query.bound.linf * (1 + 1e-12))
        worst = max(worst, float(change.max()))
    assert worst > 0.3 * query.bound.linf
    assert query.bound.linf == 2 * math.log(6)


def test_one_outlier_decides_scikit_learn_s_choice_but_not_ours():
    """scikit-learn's scores have no noise, so one row changes the published sigma every time."""
    X = table("mixture", 2000)[0]
    far = X.copy()
    far[7] = 300.0
    settings = {"start": list(BETA), "n_iter": 2, "epsilon": 1.0, "delta": 1e-6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = [GridSearchCV(DPSymmetricMixture(**settings), GRID, cv=2).fit(rows).best_params_ for rows in (X, far)]
    assert chosen == [{"sigma": 0.5}, {"sigma": 8.0}]
    ours = DPGridSearch(DPSymmetricMixture(start=list(BETA), n_iter=2), GRID, epsilon=1.0, delta=1e-6)
    assert [ours.fit(rows).best_params_ for rows in (X, far)] == [{"sigma": 0.5}] * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimator": Ridge()}, "candidates are compared; got Ridge"),
        ({"estimator": DPSymmetricMixture(budget=Budget(1.0, 1e-5))}, "must not have a budget: give it to the search"),
        ({"param_grid": {"epsilon": [1.0, 2.0]}}, "'epsilon' is the same for all"),
        ({"param_grid": {"alpha": [1.0, 2.0]}}, "'alpha' is no argument of the estimator"),
        ({"param_grid": 3}, "param_grid must be a dict"),
        ({"param_grid": {"sigma": [0.5, -1.0]}}, "sigma must be a positive finite number"),
        ({"epsilon": None}, "epsilon and delta must both be given"),
        ({"epsilon": math.inf}, "epsilon must be finite"),
        ({"random_state": 0}, "budget and random_state must not both be given"),
        ({"rows_per_person": 0}, "rows_per_person must be a whole number"),
    ],
)
def test_what_is_refused_is_not_charged(change, words):
    budget = Budget(9.0, 1e-3)
    given = {"estimator": MODELS["mixture"], "param_grid": GRID, **PRICE, "budget": budget, **change}
    search = DPGridSearch(given.pop("estimator"), given.pop("param_grid"), **given)
    with pytest.raises(ValueError, match=words):
        search.fit(*table("mixture", 500))
    assert budget.n_charges == 0
    with pytest.raises((NotFittedError, AttributeError)):
        search.predict(table("mixture", 500)[0])


def test_a_search_over_a_source_and_a_seed():
    X, y = table("regressions")
    search = DPGridSearch(MODELS["regressions"], GRID, **PRICE, random_state=3, rows_per_person=2)
    first, again = search.fit(ArraySource(X, y)), DPGridSearch(**search.get_params(deep=False)).fit(X, y)
    np.testing.assert_array_equal(first.best_estimator_.coef_, again.best_estimator_.coef_)
    assert first.guarantee_.private is False
    assert first.guarantee_.rows_per_person == first.candidates_[0].guarantee_.rows_per_person == 2


def test_the_chosen_fit_is_not_saved(tmp_path):
    search = DPGridSearch(MODELS["mixture"], GRID, **PRICE).fit(*table("mixture"))
    for unsaved in (search, search.best_estimator_):
        with pytest.raises(ValueError, match="model must not come from a search"):
            save_model(unsaved, tmp_path / "model.json")
    assert not list(tmp_path.iterdir())
    save_model(search.candidates_[0], tmp_path / "model.json")
    assert "at most e^2 times" in str(search.best_estimator_.guarantee_)


def people(n=4000):
    rng = np.random.default_rng(8)
    ill = rng.random(n) < 0.5
    answers = {f"q{j}": np.where(rng.random(n) < np.where(ill, 0.85, 0.15), "yes", "no") for j in range(5)}
    place = {"a": rng.normal(np.where(ill, 3.0, -3.0)), "b": rng.normal(np.where(ill, -2.0, 2.0))}
    answers["q0"][::7] = "no answer"  # no declared level: a missing value
    return pd.DataFrame({**answers, **place}), ill


GENERAL = {
    "groups": (DPGaussianMixture(bounds=(-10, 10)), {"n_components": [1, 2]}, ["a", "b"]),
    "classes": (
        DPLatentClass(levels={f"q{j}": ["no", "yes"] for j in range(5)}),
        {"n_classes": [2, 3]},
        [f"q{j}" for j in range(5)],
    ),
}


@pytest.mark.parametrize("name", GENERAL)
def test_a_search_over_general_models_takes_texts_and_names(name):
    estimator, grid, columns = GENERAL[name]
    rows, ill = people()
    budget = Budget(4.0, 1e-5)
    search = DPGridSearch(estimator, grid, epsilon=4.0, delta=1e-6, budget=budget)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(rows[columns])
    # of the fit that is chosen, and of no other: three classes where there are two may be chosen, and are doubted
    assert [str(warning.message) for warning in caught] == [
        str(diagnostic) for diagnostic in search.best_estimator_.diagnostics_
    ]
    assert not caught or name == "classes"
    assert budget.n_charges == 1
    assert list(search.feature_names_in_) == columns
    groups = search.predict(rows[columns])
    agree = np.mean((groups == groups[ill][0]) == ill) if len(np.unique(groups)) == 2 else 0.9
    assert max(agree, 1 - agree) > 0.85
    if name == "groups":
        assert search.best_params_ == {"n_components": 2}
    page = render(search.best_estimator_)
    assert "ε = 4, δ = 10⁻⁶" in page
    again = pickle.loads(pickle.dumps(search.set_params(budget=None)))
    np.testing.assert_array_equal(again.predict(rows[columns]), groups)


def test_refusals_of_a_search_over_general_models_cost_nothing():
    rows, _ = people(200)
    budget = Budget(4.0, 1e-5)
    paid = {"epsilon": 1.0, "delta": 1e-6, "budget": budget}
    for estimator, grid, message in (
        (DPLinearRegression(bounds=(-10, 10), y_bounds=(-9, 9)), {"sparsity": [1]}, "got DPLinearRegression"),
        (GENERAL["classes"][0], {"levels": [None]}, "'levels' is the same for all"),
        (GENERAL["classes"][0], {"n_classes": [1, 2]}, "n_classes must be at least 2"),
        (DPLatentClass(), {"n_classes": [2]}, "columns .* are not numeric"),
    ):
        with pytest.raises(ValueError, match=message):
            DPGridSearch(estimator, grid, **paid).fit(rows.iloc[:, :5], rows["a"] if "sparsity" in grid else None)
    assert budget.n_charges == 0


def test_candidates_are_compared_on_the_columns_of_the_formula():
    """The table has a column that the formula does not name, and columns in another order."""
    rng = np.random.default_rng(3)
    people = pd.DataFrame({"id": np.arange(4000), "height": rng.normal(0, 1, 4000), "other": "x"})
    people["weight"] = np.exp(rng.choice([1.0, 4.0], 4000) + 0.1 * rng.standard_normal(4000))
    bounds = {"weight": (0.1, 1000), "height": (-5, 5), "other": (0, 1)}
    model = DPGaussianMixture.from_formula("~ log(weight) + height", 2, bounds=bounds, check=False)
    search = DPGridSearch(model, {"n_components": [1, 2]}, **PRICE, random_state=0, person="id").fit(people)
    assert search.best_params_ == {"n_components": 2}


@pytest.mark.parametrize(
    ("model", "grid", "message"),
    [
        (DPGaussianMixture(2, bounds=(-9, 9)), {"formula": ["~ x0"]}, "'formula' is the same for all"),
        (
            DPMixtureRegression.from_formula("y ~ x0", 2, bounds={"x0": (0, 1), "y": (0, 1)}),
            {"check": [False]},
            "estimator must have no formula, unless X is a data frame and the model has no response",
        ),
    ],
)
def test_a_formula_that_cannot_be_searched_is_refused_before_the_charge(model, grid, message):
    budget = Budget(**PRICE)
    X = np.random.default_rng(0).random((500, 2))
    with pytest.raises(ValueError, match=message):
        DPGridSearch(model, grid, **PRICE, budget=budget).fit(pd.DataFrame(X, columns=["x0", "y"]))
    assert budget.n_charges == 0
