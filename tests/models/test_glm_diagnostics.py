"""Diagnostics of logistic and Poisson regression: wrongly declared tables, collinear columns, few events."""

import numpy as np
import pandas as pd
import pytest

import dpem

RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame({"age": RNG.uniform(20, 80, 10_000), "region": RNG.choice(["north", "south", "west"], 10_000)})
ODDS = np.exp(-3 + 0.05 * PEOPLE.age + 0.5 * (PEOPLE.region == "south"))
ILL = pd.Series(np.where(RNG.random(10_000) < ODDS / (1 + ODDS), "yes", "no"), name="ill")
COUNTS = pd.Series(RNG.poisson(np.exp(1 + 0.03 * (PEOPLE.age - 50))), name="visits")
LEVELS = {"region": ["north", "south", "west"], "ill": ["no", "yes"]}


def diagnostics_of(y=ILL, bounds=(18, 100), kind=dpem.DPLogisticRegression, **more):
    levels = {"region": LEVELS["region"]} if kind is dpem.DPPoissonRegression else LEVELS
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": {"age": bounds}, "levels": levels, "random_state": 0} | more
    return {diagnostic.code: diagnostic for diagnostic in kind(**settings).fit(PEOPLE, y).diagnostics_}


def test_a_correctly_declared_table_has_no_diagnostic():
    assert diagnostics_of() == {}
    assert diagnostics_of(COUNTS, kind=dpem.DPPoissonRegression, y_bounds=(0, 40)) == {}


def test_for_a_level_without_rows_the_advice_is_to_check_the_spelling():
    """Noise sometimes looks like rows of the level."""
    misspelt = {**LEVELS, "region": ["north", "South", "west"]}
    fits = [diagnostics_of(levels=misspelt, random_state=seed) for seed in range(5)]
    rare = [found["rare-level"] for found in fits if "rare-level" in found]
    assert len(rare) >= 3
    assert {diagnostic.columns for diagnostic in rare} == {("region=South",)}
    assert "spelling" in rare[0].advice
    assert {found["incomplete-rows"].severity for found in fits} == {"warning"}


@pytest.mark.parametrize("classes", [("No", "Yes"), (0, 1)])
def test_responses_that_are_neither_class_give_a_warning_that_names_classes(classes):
    wrong = diagnostics_of(levels={"region": LEVELS["region"]}, classes=classes)["incomplete-rows"]
    assert wrong.severity == "warning"
    assert "classes=" in wrong.advice
    assert "does not depend on the response" in wrong.advice  # the values may simply be missing


def test_few_events_give_a_warning():
    rare = ILL.where(PEOPLE.age > 79.9, "no")
    assert "'yes'" in diagnostics_of(rare, epsilon=4.0)["few-events"].message


def test_columns_and_counts_at_their_bounds_give_a_warning():
    assert diagnostics_of(bounds=(0, 30))["at-bound"].columns == ("age",)
    clipped = diagnostics_of(COUNTS, kind=dpem.DPPoissonRegression, y_bounds=(0, 2))["response-at-bound"]
    assert "y_bounds" in clipped.advice


def test_the_messages_about_long_tails_between_wide_bounds_hold():
    """Five columns of percentages, most of them 0, without a missing value: clipped moments look like missing rows."""
    rng = np.random.default_rng(0)
    x = 0.3 * rng.exponential(1.0, size=(5000, 5)) ** 2 * (rng.random((5000, 5)) < 0.4)
    y = (rng.random(5000) < 1 / (1 + np.exp(1 - x[:, 0]))).astype(float)
    fits = [dpem.DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=(0, 100)).fit(x, y) for _ in range(4)]
    messages = {diagnostic.code: diagnostic.message for model in fits for diagnostic in model.diagnostics_}
    assert "complete, or more if columns have long tails" in messages["incomplete-rows"]
    assert "within 1/32 of the range" in messages["at-bound"]
    assert "other coefficients include part of it" in messages["few-rows"]


def test_columns_of_zeros_and_ones_are_not_at_a_bound():
    two = (COUNTS > 2).astype(float).rename("many")
    assert diagnostics_of(two, kind=dpem.DPPoissonRegression, y_bounds=(0, 1)) == {}
    frame = pd.DataFrame({"old": (PEOPLE.age > 35) + 1.0, "young": (PEOPLE.age < 25) * 1.0})
    model = dpem.DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds={"old": (1, 2), "young": (0, 1)}, random_state=0)
    codes = {diagnostic.code for diagnostic in model.fit(frame, (ILL == "yes").astype(float)).diagnostics_}
    assert not codes & {"at-bound", "wide-bounds"}


@pytest.mark.parametrize("kind", [dpem.DPLogisticRegression, dpem.DPPoissonRegression])
def test_wide_bounds_of_a_centred_column_give_a_warning(kind):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.uniform(-1, 1, 5000)})
    y = (rng.random(5000) < 1 / (1 + np.exp(-x.x))).to_numpy().astype(float)
    given = {} if kind is dpem.DPLogisticRegression else {"y_bounds": (0, 5)}
    for half, columns in ((40, [("x",)]), (2, [])):
        model = kind(epsilon=1.0, delta=1e-6, bounds=(-half, half), random_state=0, **given).fit(x, y)
        assert [diagnostic.columns for diagnostic in model.diagnostics_ if diagnostic.code == "wide-bounds"] == columns


@pytest.mark.parametrize(
    ("correlation", "epsilon", "is_named"), [(0.99, 1.0, False), (0.99999, 1.0, True), (0.5, 1.0, False)]
)
def test_columns_whose_difference_noise_hides_are_collinear(correlation, epsilon, is_named):
    """A correlation of .99 is resolved: the coefficients hold maximum likelihood's."""
    rng = np.random.default_rng(0)
    a, c = rng.standard_normal((2, 10_000))
    c = correlation * a + np.sqrt(1 - correlation**2) * c
    y = (rng.random(10_000) < 1 / (1 + np.exp(0.5 - 0.6 * a + 0.2 * c))).astype(float)
    known = {"delta": 1e-6, "bounds": {"a": (-6, 6), "c": (-6, 6)}}
    rows = pd.DataFrame({"a": a, "c": c})
    best = dpem.DPLogisticRegression(epsilon=np.inf, **known).fit(rows, y)
    model = dpem.DPLogisticRegression(epsilon=epsilon, random_state=0, **known).fit(rows, y)
    columns = [diagnostic.columns for diagnostic in model.diagnostics_ if diagnostic.code == "collinear"]
    assert columns == ([("a", "c")] if is_named else [])
    if not is_named:
        assert np.all(np.abs(model.coef_ - best.coef_) < 2 * model.standard_errors_[1:])
        assert np.all(model.standard_errors_ < 1.5 * best.standard_errors_)
