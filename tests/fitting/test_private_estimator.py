"""The order and the guarantee of every general fit, with a small model: the mean of each column."""

import math

import numpy as np
import pandas as pd
import pytest
from small_models import DPMeans

from dpem import ArgumentError, Budget, DPLinearRegression
from dpem.fitting.diagnostics import FitWarning
from dpem.fitting.plan import Plan

SETTINGS = {"epsilon": 1.0, "delta": 1e-6, "bounds": {"age": (0, 100), "dose": (0, 4)}}


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 10, 5000), "dose": rng.normal(3, 0.3, 5000)})
    frame.iloc[::7, 0] = np.nan
    return frame


def test_a_fit_answers_in_units_with_intervals(people):
    model = DPMeans(**SETTINGS).fit(people)
    assert np.allclose(model.means_, [60 * 6 / 7 + 50 / 7, 3], atol=1.5)
    table = model.summary()
    assert list(table.index) == ["age", "dose"]
    assert (table.lower < table.estimate).all()
    assert (table.upper > table.estimate).all()
    assert model.conf_int(0.5).shape == (2, 2)
    assert model.fit_check_.better
    assert "better than a mean of zero" in repr(model)
    assert model.guarantee_.private


def test_the_plan_equals_that_of_the_fit_and_is_saved(people):
    model = DPMeans(**SETTINGS)
    plan = model.plan(5000)
    assert model.fit(people).plan_ == plan
    assert str(Plan.from_dict(plan.to_dict())) == str(plan)
    assert Plan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()
    assert math.isclose(sum(release.price.rho for release in model.releases_), plan.price.rho)


def test_a_fit_that_is_no_better_than_the_simpler_model_says_so():
    rows = np.random.default_rng(1).uniform(-1, 1, size=(4000, 2))
    with pytest.warns(FitWarning, match="no improvement over a mean of zero"):
        DPMeans(epsilon=1.0, delta=1e-6, bounds=(-1, 1)).fit(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds": None}, "bounds must be given: public limits of columns 'age', 'dose'"),
        ({"bounds": {"age": (0, 100)}}, "lack column 'dose'"),
        ({"bounds": {"age": (100, 0), "dose": (0, 1)}}, "bounds of 'age' must have low below high, got 100 and 0"),
        ({"bounds": {"age": (0, math.inf), "dose": (0, 1)}}, "bounds of 'age' must be two finite numbers"),
        ({"bounds": "nowhere.json"}, "bounds cannot be read"),
        ({"epsilon": None}, "epsilon and delta must both be given"),
        ({"check": 1}, "check must be True or False"),
        ({"levels": {"dose": ["a", "a"]}}, "levels of 'dose' must be a list of at least two different levels"),
        ({"levels": {"hat": [0, 1]}}, "X lacks column 'hat'"),
        ({"random_state": 0}, "budget and random_state must not both be given"),
    ],
)
def test_refusals_spend_nothing(people, change, words):
    budget = Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match=words):
        DPMeans(**{**SETTINGS, "budget": budget, **change}).fit(people)
    assert budget.n_charges == 0


def test_missing_bounds_of_a_response_name_an_argument_of_the_estimator():
    class OfLevels(DPMeans):
        _needs_y = True

        def __init__(self, *, epsilon=None, delta=None, levels=None, y_bounds=None, random_state=None):
            super().__init__(epsilon=epsilon, delta=delta, levels=levels, random_state=random_state)
            self.y_bounds = y_bounds

    sites, costs = pd.DataFrame({"site": ["n", "s"] * 50}), pd.Series(np.arange(100.0), name="cost")
    with pytest.raises(ArgumentError, match=r"^y_bounds must be given: public limits"):
        OfLevels(epsilon=1.0, delta=1e-6, levels={"site": ["n", "s"]}).fit(sites, costs)


def test_a_misspelt_argument_gets_a_suggestion():
    with pytest.raises(TypeError, match=r"^DPLinearRegression\(\) got .* 'epsilom'; did you mean 'epsilon'\?$"):
        DPLinearRegression(epsilom=1.0)


def test_levels_become_coordinates_and_other_texts_are_missing(people):
    people = people.assign(sex=np.where(np.arange(len(people)) % 2 == 0, "f", "x"))
    model = DPMeans(**{**SETTINGS, "levels": {"sex": ["m", "f"]}}).fit(people)
    assert model.schema_.names == ("age", "dose", "sex=f")
    with pytest.raises(ValueError, match="column 'sex' is not numeric"):
        DPMeans(**SETTINGS).fit(people)


def test_bounds_from_files_and_patterns(tmp_path, people):
    (tmp_path / "b.json").write_text('{"a*": [0, 100], "dose": [0, 4]}')
    (tmp_path / "b.csv").write_text("name,low,high\nage,0,100\ndose,0,4\n")
    for kind in ("json", "csv"):
        fitted = DPMeans(**{**SETTINGS, "bounds": tmp_path / f"b.{kind}", "random_state": 0}).fit(people)
        assert np.allclose(fitted.schema_.middle, [50, 2])


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, 1e13, 1e300, "1", True])
def test_an_epsilon_without_a_guarantee_is_refused_before_the_charge(epsilon):
    """Above 1e12 floats cannot represent the price, and the guarantee is empty."""
    budget = Budget(math.inf, 0.5)
    model = DPLinearRegression(epsilon=epsilon, delta=1e-6, bounds=(0, 1), y_bounds=(0, 1), budget=budget)
    with pytest.raises(ArgumentError, match="epsilon must be a positive number up to"):
        model.fit(np.zeros((50, 1)), np.zeros(50))
    assert budget.n_charges == 0
