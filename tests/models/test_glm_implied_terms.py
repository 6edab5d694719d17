"""Terms that follow from other terms of a formula: which ones, and their values."""

import numpy as np
import pandas as pd
import pytest

import dpem
from dpem.fitting.formula import compiled
from dpem.models._glm.implied_terms import ImpliedTerms
from dpem.tables.blocks import numpy_api
from dpem.tables.schema import Schema

BOUNDS = {"x": (1.0, 10.0), "z": (-2.0, 4.0), "y": (0.0, 1.0)}
LEVELS = {"g": ["a", "b", "c"], "h": [0, 1]}


def terms_and_schema(text):
    formula = compiled(f"y ~ {text}", BOUNDS, LEVELS, needs_y=True)
    levels = {name: entry.values for name, entry in formula.column_levels.items()}
    labels = {name: entry.labels for name, entry in formula.column_levels.items()}
    return ImpliedTerms(formula), Schema.of(formula.names, formula.column_bounds, levels, labels=labels)


@pytest.mark.parametrize(
    ("text", "implied"),
    [
        ("x + z + g", []),
        ("x + I(x**2) + I(x**3)", ["I(x ** 2)", "I(x ** 3)"]),
        ("I(x**2) + x", ["I(x ** 2)"]),
        ("I(x**2)", []),
        ("I(z**2)", []),
        ("log(x) + I(log(x)**2)", ["I(log(x) ** 2)"]),
        ("poly(x, 3)", ["poly(x, 3)[2]", "poly(x, 3)[3]"]),
        ("z + I(x * z)", []),
        ("x * z", ["x:z"]),
        ("g * x", ["g=b:x", "g=c:x"]),
        ("x + g:x", []),
        ("C(g, Treatment('b')) * h", ["C(g, Treatment('b'))=a:h=1", "C(g, Treatment('b'))=c:h=1"]),
        ("bs(x, knots=[4])", []),
        ("x + bs(x, knots=[4])", [f"bs(x, knots=[4])[{i}]" for i in (1, 2, 3, 4)]),
    ],
)
def test_terms_that_others_determine_are_implied_and_exact(text, implied):
    terms, schema = terms_and_schema(text)
    mask = terms.mask(schema)
    assert [name for name, is_implied in zip(schema.names, mask, strict=True) if is_implied] == implied
    rng = np.random.default_rng(0)
    draws = {"x": rng.uniform(1, 10, 500), "z": rng.uniform(-2, 4, 500)}
    codes = {"g": rng.integers(0, 3, 500).astype(float), "h": rng.integers(0, 2, 500).astype(float)}
    raw = np.column_stack([(draws | codes)[name] for name in terms.formula.covariates])
    whole = schema.coordinates(numpy_api, terms.formula.design(numpy_api, raw))
    hidden = np.where(mask, 0.0, whole)
    assert np.abs(terms.fill(schema, hidden) - whole).max() < 1e-6


def test_a_term_whose_factor_is_not_chosen_is_not_implied():
    terms, schema = terms_and_schema("g * x")
    some = schema.take(np.array([0, 2, 3]))  # the first level, x, and an interaction
    assert some.names == ("g=b", "x", "g=b:x")
    assert not terms.mask(some).any()


@pytest.mark.parametrize("kind", [dpem.DPLogisticRegression, dpem.DPPoissonRegression])
def test_a_square_and_a_cube_beside_the_column_are_estimated_without_bias(kind):
    """Separate surrogate columns for x, x² and x³ cannot have correlations of .99: errors were 10 SE."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0, 10, 8000), rng.choice(["a", "b"], 8000)
    eta = -2 + 0.5 * x - 0.04 * x**2 + 0.4 * (z == "b")
    y = rng.random(8000) < 1 / (1 + np.exp(-eta)) if kind is dpem.DPLogisticRegression else rng.poisson(np.exp(eta))
    rows = pd.DataFrame({"x": x, "z": z, "y": y * 1.0})
    more = {} if kind is dpem.DPLogisticRegression else {"y_bounds": (0, 20)}
    known = {"bounds": {"x": (0, 10)}, "levels": {"z": ["a", "b"]}, "delta": 1e-6, **more}
    formula = "y ~ x + I(x**2) + I(x**3) + z"
    best = kind.from_formula(formula, epsilon=np.inf, **known).fit(rows)
    model = kind.from_formula(formula, epsilon=3.0, random_state=1, **known).fit(rows)
    assert np.all(np.abs(model.coef_ - best.coef_) < 2 * model.standard_errors_[1:])
    assert np.all(model.standard_errors_ < 2 * best.standard_errors_)
    assert "collinear" not in {diagnostic.code for diagnostic in model.diagnostics_}


def test_the_column_of_a_spline_is_released_instead_of_its_terms(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(5, 1.5, 10_000)
    rows = pd.DataFrame({"x": x, "y": (rng.random(10_000) < 1 / (1 + np.exp(-np.sin(x)))) * 1.0})
    known = {"bounds": {"x": (0, 10)}, "delta": 1e-6}
    formula = "y ~ bs(x, knots=[4, 6])"
    best = dpem.DPLogisticRegression.from_formula(formula, epsilon=np.inf, **known).fit(rows)
    model = dpem.DPLogisticRegression.from_formula(formula, epsilon=3.0, random_state=1, **known).fit(rows)
    assert model.coef_names_[-1] == "x"
    assert model.coef_[-1] == 0
    assert list(model.summary().index) == ["intercept", *model.coef_names_[:-1]]
    assert np.all(np.abs(model.coef_ - best.coef_)[:-1] < 2.5 * model.standard_errors_[1:])
    assert "collinear" not in {diagnostic.code for diagnostic in model.diagnostics_}
    dpem.save_model(model, tmp_path / "m.json")
    assert dpem.load_model(tmp_path / "m.json").predict_proba(rows) == pytest.approx(model.predict_proba(rows))
