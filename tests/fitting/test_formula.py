"""Formulas: the design equals statsmodels', bounds contain every value, and refusals name an alternative."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from click.testing import CliRunner

import dpem
from dpem.audit.replay import compare
from dpem.audit.tape import record
from dpem.cli import cli
from dpem.fitting.formula import compiled
from dpem.fitting.formula_columns import interval, values
from dpem.fitting.formula_terms import Arrays

BOUNDS = {"educ": (0, 25), "exper": (0, 45), "wage": (0.5, 400)}
LEVELS = {"region": ["n", "s", "w"], "married": ["no", "yes"]}
TEXT = "log(wage) ~ educ + exper + I(exper**2) + C(region) * married"


def people(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "name": "x",
            "educ": rng.integers(6, 20, n).astype(float),
            "exper": rng.uniform(0, 40, n),
            "region": rng.choice(LEVELS["region"], n),
            "married": rng.choice(LEVELS["married"], n),
        }
    )
    both = (frame.region == "w") & (frame.married == "yes")
    mean = 0.5 + 0.08 * frame.educ + 0.04 * frame.exper - 0.0007 * frame.exper**2 + 0.2 * both
    return frame.assign(wage=np.exp(mean + 0.4 * rng.standard_normal(n)))


def settings(**more):
    return {"epsilon": math.inf, "delta": 1e-6, "bounds": BOUNDS, "levels": LEVELS} | more


def test_without_privacy_a_fit_equals_statsmodels():
    frame = people()
    model = dpem.DPLinearRegression.from_formula(TEXT, **settings()).fit(frame)
    reference = smf.ols(TEXT.replace("log(", "np.log("), frame).fit()
    assert model.predict(frame) == pytest.approx(reference.fittedvalues, abs=1e-8)
    assert sorted(model.summary()["estimate"][:-1]) == pytest.approx(sorted(reference.params), abs=1e-8)
    assert "C(region)=w:married=yes" in model.coef_names_


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("hit ~ educ + I(educ^2) + factor(region)", "hit ~ educ + I(educ**2) + C(region)"),
        ("hit ~ as.factor(region) * educ", "hit ~ C(region) * educ"),
        ("hit ~ poly(educ, 2, raw=TRUE)", "hit ~ educ + I(educ**2)"),
        ("hit ~ bs(exper, knots=c(10, 30))", "hit ~ bs(exper, knots=(10, 30), lower_bound=0, upper_bound=45)"),
        ("hit ~ Q('years of school')", "hit ~ educ"),
        ("hit ~ log(`years of school`)", "hit ~ np.log(educ)"),
        ("hit ~ married:region", "hit ~ married:region"),
        ("hit ~ I(educ > 12):married", "hit ~ I(educ > 12):married"),
        ("hit ~ region + married:region", "hit ~ region + married:region"),
        ("hit ~ I(married == 'yes') * I((educ > 9) & (exper < 20))", "hit ~ married * I((educ > 9) & (exper < 20))"),
        ("hit ~ I((region != 'n') | (educ > 12))", "hit ~ I((region != 'n') | (educ > 12))"),
        ("hit ~ I(8 < educ < 12)", "hit ~ I((8 < educ) & (educ < 12))"),
        ("I(married == 'yes') ~ educ", "hit ~ educ"),
        ("C(married) ~ educ", "hit ~ educ"),
        ("married ~ educ + offset(log(exper + 1))", None),
    ],
)
def test_spellings_of_r_and_patsy_are_read(written, same):
    frame = people(2000).assign(hit=lambda t: (t.married == "yes") * (t.educ > 8) * 1.0)
    if "married" in written.partition("~")[0]:
        frame["hit"] = (frame.married == "yes") * 1.0
    frame["years of school"] = frame["educ"]
    bounds = BOUNDS | {"years of school": (1, 25)}
    model = dpem.DPLogisticRegression.from_formula(written, **settings(bounds=bounds)).fit(frame)
    offset = np.log(frame.exper + 1) if same is None else None
    reference = smf.glm(same or "hit ~ educ", frame, family=sm.families.Binomial(), offset=offset).fit()
    assert len(model.summary()) == len(reference.params)
    assert model.predict_proba(frame)[:, 1] == pytest.approx(reference.fittedvalues, abs=1e-6)


def test_a_poisson_offset_equals_statsmodels(tmp_path):
    frame = people(2000)
    frame["visits"] = np.random.default_rng(1).poisson(0.1 * frame.exper)
    arguments = settings(bounds=BOUNDS | {"visits": (0, 60), "exper": (0.001, 45)})
    model = dpem.DPPoissonRegression.from_formula("visits ~ offset(log(exper)) + educ", **arguments).fit(frame)
    reference = smf.glm("visits ~ educ", frame, family=sm.families.Poisson(), offset=np.log(frame.exper)).fit(
        scale="X2"
    )
    assert model.predict(frame) == pytest.approx(reference.fittedvalues, rel=1e-6)
    assert model.t_test("educ").effect[0] == pytest.approx(reference.params.iloc[1])
    assert model.standard_errors_ == pytest.approx(reference.bse / np.sqrt(min(reference.scale, 1)), rel=1e-6)
    assert list(model.summary().index) == ["intercept", "educ"]
    private = dpem.DPPoissonRegression.from_formula(model.formula, **arguments | {"epsilon": 2.0, "random_state": 0})
    dpem.save_model(private.fit(frame), tmp_path / "m.json")
    assert dpem.load_model(tmp_path / "m.json").predict(frame) == pytest.approx(private.predict(frame))
    for kind, text in (
        (dpem.DPLinearRegression, "wage ~ offset(educ) + exper"),
        (type(model), "visits ~ offset(educ):exper"),
    ):
        with pytest.raises(ValueError, match="offset"):
            kind.from_formula(text, **arguments).fit(frame)


def test_an_interaction_without_main_effects_keeps_every_level():
    frame = people()
    text = "wage ~ C(region) + C(region):exper"
    model = dpem.DPLinearRegression.from_formula(text, **settings()).fit(frame)
    assert model.predict(frame) == pytest.approx(smf.ols(text, frame).fit().fittedvalues, abs=1e-8)


@pytest.mark.parametrize("text", ["married ~ educ + I(exper**2) + C(region)", "married ~ region + sqrt(exper)"])
def test_logistic_formulas_with_texts(text):
    frame = people()
    model = dpem.DPLogisticRegression.from_formula(text, **settings()).fit(frame)
    right = text.partition("~")[2].replace("sqrt", "np.sqrt")
    reference = smf.logit("married ~" + right, frame.assign(married=(frame.married == "yes") * 1.0)).fit(disp=0)
    assert model.predict_proba(frame)[:, 1] == pytest.approx(reference.predict(frame), abs=1e-6)
    assert list(model.classes_) == ["no", "yes"]


def test_private_fits_are_saved_and_predict_from_the_raw_table(tmp_path):
    frame = people(8000)
    model = dpem.DPLinearRegression.from_formula(TEXT, **settings(epsilon=2.0, random_state=0)).fit(frame)
    reference = smf.ols(TEXT.replace("log(", "np.log("), frame).fit()
    error = np.std(model.predict(frame) - reference.fittedvalues) / np.std(reference.fittedvalues)
    assert error < 0.25
    dpem.save_model(model, tmp_path / "m.json")
    again = dpem.load_model(tmp_path / "m.json")
    shuffled = frame[["married", "region", "exper", "name", "educ"]]
    assert again.predict(shuffled) == pytest.approx(model.predict(frame), abs=1e-12)
    assert again.summary().equals(model.summary())
    dpem.write_report(again, tmp_path / "report.html")
    with pytest.raises(ValueError, match="X lacks columns of the formula: 'region'"):
        again.predict(frame.drop(columns="region"))


def test_every_source_gives_the_same_answer(tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    frame = people(3000)
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.to_parquet(tmp_path / "people.parquet")
    model = dpem.DPLinearRegression.from_formula(TEXT, **settings())
    expected = model.fit(frame).coef_
    for name in ("people.csv", "people.parquet"):
        source = dpem.read_table(tmp_path / name, exclude=["name"], levels=LEVELS)
        assert model.fit(source).coef_ == pytest.approx(expected, abs=1e-9), name
    numeric = frame[["educ", "exper", "wage"]]
    text = "log(wage) ~ educ + I(exper**2)"
    model = dpem.DPLinearRegression.from_formula(text, **settings(levels=None))
    expected = model.fit(numeric).coef_
    assert model.fit(dask.from_pandas(numeric, npartitions=3)).coef_ == pytest.approx(expected, abs=1e-9)


def test_mixtures_have_formulas_without_a_response():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"x": rng.normal(size=4000) + 6 * (rng.random(4000) < 0.5), "y": np.exp(rng.normal(size=4000))}
    )
    bounds = {"x": (-6, 12), "y": (0.01, 100)}
    model = dpem.DPGaussianMixture.from_formula(
        "~ x + log(y)", 2, epsilon=4.0, delta=1e-6, bounds=bounds, random_state=0
    )
    model.fit(frame)
    assert sorted(model.means_[:, 0]) == pytest.approx([0, 6], abs=0.5)
    assert model.means_[:, 1] == pytest.approx([0, 0], abs=0.5)
    assert len(model.predict(frame)) == 4000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I(x**2)", (0, 9)),
        ("I(x*x)", (0, 9)),
        ("I(x**3)", (-27, 8)),
        ("I(x*z)", (-12, 8)),
        ("I(abs(x))", (0, 3)),
        ("I(x - z)", (-7, 1)),
        ("I(-x / z)", (-2, 3)),
        ("log(z)", (0, math.log(4))),
        ("exp(x)", (math.exp(-3), math.exp(2))),
        ("sqrt(z)", (1, 2)),
        ("I(x > 1)", (0, 1)),
        ("poly(x, 3, raw=True)", (-3, 2)),
        ("I(z**-1)", (0.25, 1)),
    ],
)
def test_intervals_are_tight_and_contain_every_value(text, expected):
    bounds = {"x": (-3.0, 2.0), "z": (1.0, 4.0)}
    low, high = interval(text, bounds)
    assert (low, high) == pytest.approx(expected)
    rng = np.random.default_rng(2)
    grid = np.linspace(0, 1, 41)
    x, z = (
        np.append(rng.uniform(*pair, 500), pair[0] + (pair[1] - pair[0]) * np.append(grid, [0, 1]))
        for pair in bounds.values()
    )
    x[:5] = np.nan
    results = values(text, Arrays(bounds, {}, np, {"x": x, "z": z}))
    finite = results[np.isfinite(results)]
    assert np.isnan(results[:5]).all() == (text not in ("log(z)", "sqrt(z)", "I(z**-1)"))
    assert low - 1e-12 <= finite.min()
    assert finite.max() <= high + 1e-12


def test_splines_and_polynomials_span_the_space_of_statsmodels():
    frame = people()
    for mine, theirs in (
        ("wage ~ poly(exper, 3)", "wage ~ exper + I(exper**2) + I(exper**3)"),
        ("wage ~ bs(exper, knots=[10, 30])", "wage ~ bs(exper, knots=(10, 30), lower_bound=0, upper_bound=45)"),
    ):
        model = dpem.DPLinearRegression.from_formula(mine, **settings()).fit(frame)
        assert model.predict(frame) == pytest.approx(smf.ols(theirs, frame).fit().fittedvalues, rel=1e-6)


def test_every_other_level_is_a_level_of_formulas_too():
    levels = {"g": ["a", "b", "<other>"], "y": ["no", "yes"]}
    frame = pd.DataFrame({"g": ["a", "b", "c", "d", None] * 60, "y": ["no", "yes", "no", "yes", "no", "yes"] * 50})
    frame["hit"], frame["pooled"] = (frame.y == "yes") * 1.0, frame.g.replace({"c": "z", "d": "z"})
    for text in ("y ~ C(g)", "y ~ I(g == 'a') + I(g == 'b')"):
        model = dpem.DPLogisticRegression.from_formula(text, **settings(levels=levels)).fit(frame)
        reference = smf.glm("hit ~ C(pooled)", frame.dropna(), family=sm.families.Binomial()).fit()
        predicted = model.predict_proba(frame)[:, 1]
        assert predicted[frame.g.notna()] == pytest.approx(reference.fittedvalues, abs=1e-6)
        assert np.isnan(predicted[frame.g.isna()]).all()


def test_names_that_are_not_identifiers_are_in_backquotes():
    frame = people().rename(columns={"exper": "years out", "educ": "lambda"})
    bounds = {**settings()["bounds"], "years out": (0, 45), "lambda": (0, 20)}
    text = "log(wage) ~ `lambda` + I(`years out`**2 / 100) + bs(`years out`, knots=[20], degree=1)"
    model = dpem.DPLinearRegression.from_formula(text, **settings(bounds=bounds)).fit(frame)
    usual = text.replace("`lambda`", "educ").replace("`years out`", "exper")
    expected = dpem.DPLinearRegression.from_formula(usual, **settings()).fit(people())
    assert model.predict(frame) == pytest.approx(expected.predict(people()), rel=1e-9)
    test = model.t_test("lambda - 2 * I(`years out` ** 2 / 100) = 0")
    assert test.effect == pytest.approx(expected.t_test("educ - 2 * I(exper ** 2 / 100) = 0").effect)


def test_raw_columns_are_clamped_before_terms_are_computed():
    formula = compiled("y ~ I(x**2)", {"x": (-1, 2), "y": (0, 1)}, None, needs_y=True)
    design = formula.design(np, np.array([[50.0], [-50.0], [np.inf], [0.5]]))
    assert design[:, 0][[0, 1, 3]].tolist() == [4.0, 1.0, 0.25]
    assert np.isnan(design[2, 0])
    assert formula.column_bounds == {"I(x ** 2)": (0.0, 4.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log(wage) ~ center(educ)", "center.* depends on other rows: subtract a public number"),
        ("wage ~ scale(educ)", "scale.* depends on other rows"),
        ("wage ~ bs(educ, df=4)", "give public knots inside the bounds"),
        ("wage ~ C(name)", "levels must have an entry 'name'"),
        ("log(educ) ~ exper", "needs values above 0, but they begin at 0"),
        ("wage ~ 0 + educ", "must keep its intercept"),
        ("wage ~ I(educ/exper)", "divides by a term whose bounds contain 0"),
        ("wage ~ foo(educ)", "known functions are log"),
        ("wage ~ tenure", "bounds must have an entry 'tenure'"),
        ("~ educ", "one response left of '~'"),
        ("wage ~ (educ", "formula is not valid"),
        ("wage ~ educ | exper", "one right side"),
        ("wage ~ log(lambda)", "Rename 'lambda', which is a keyword of Python"),
        ("wage ~ log(years.out)", "write a name with a dot in backquotes"),
        (7, "formula must be a text"),
        ("wage ~ .", "with columns by name"),
        ("wage ~ I(region == 'x')", "compares 'region' with 'x', which is not one of its levels"),
        ("wage ~ I(name == 'x')", "a column with declared levels"),
        ("wage ~ I(region * 2)", r"it has levels; write C\(region\)"),
        ("wage ~ region + C(region)", "have each term once"),
        ("wage ~ log(educ.years)", "write a name with a dot in backquotes"),
        ("wage ~ log(educ, 2)", "log takes one argument"),
        ("wage ~ I(educ % 2)", "cannot have 'educ % 2'"),
        ("wage ~ bs(educ, knots=[5], df=3)", "bs takes knots, a degree from 1 to 5 and include_intercept"),
        ("wage ~ I(poly(educ, 2) + 1)", "must be a term of its own"),
        ("wage ~ poly(degree=2)", "it needs a column"),
        ("cbind(wage, educ) ~ exper", "cannot have 'cbind"),
    ],
)
def test_refusals_name_an_alternative(text, message):
    with pytest.raises(ValueError, match=message):
        dpem.DPLinearRegression.from_formula(text, **settings(epsilon=1.0)).fit(people(100))


@pytest.mark.parametrize("left", ["cbind(wage, educ)", "log(wage)", "I(foo(wage) > 3)", "wage:educ"])
def test_a_logistic_response_that_cannot_be_computed_is_refused_before_the_charge(left):
    budget = dpem.Budget(10.0, 1e-5)
    arguments = settings(epsilon=1.0, budget=budget)
    with pytest.raises(ValueError, match="formula"):
        dpem.DPLogisticRegression.from_formula(f"{left} ~ exper", **arguments).fit(people(100))
    assert budget.spent_epsilon == 0


def test_one_odd_row_stays_within_the_bounds_of_all_queries():
    frame = people(200)
    other = frame.copy()
    other.loc[3, ["educ", "exper", "wage"]] = [1e300, -np.inf, np.nan]
    other.loc[3, "region"] = "nowhere"
    model = dpem.DPLinearRegression.from_formula(TEXT, **settings(epsilon=4.0, delta=1e-4))
    first = record(model, frame)
    assert "refused" not in first.outcome
    assert compare(first, record(model, other, frozen=first)).faults == []


def test_the_plan_shows_the_bounds_of_terms():
    plan = dpem.DPPoissonRegression.from_formula(
        "visits ~ I(age**2) + C(sex)", bounds={"age": (-1, 90), "visits": (0, 50)}, levels={"sex": ["f", "m"]},
        epsilon=1.0, delta=1e-6,
    ).plan(5000)  # fmt: skip
    assert "Terms: I(age ** 2) from 0 to 8100; C(sex): f, m." in str(plan)


def test_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people(4000).to_csv("people.csv", index=False)
    (tmp_path / "bounds.json").write_text('{"educ": [0, 25], "exper": [0, 45], "wage": [0.5, 400]}')
    (tmp_path / "levels.json").write_text('{"region": ["n", "s", "w"], "married": ["no", "yes"]}')
    common = ["--bounds", "bounds.json", "--levels", "levels.json", "--epsilon", "2", "--delta", "1e-6"]
    result = CliRunner().invoke(cli, ["fit", "linear-regression", "people.csv", "--formula", TEXT, *common])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(cli, ["predict", "model.json", "people.csv", "--out", "predictions.csv"])
    assert result.exit_code == 0, result.output
    assert pd.read_csv("predictions.csv")["prediction"].between(0, 6).all()
    text = "married ~ educ + C(region)"
    arguments = ["fit", "logistic-regression", "people.csv", "--formula", text, *common, "--anyway", "--out", "l.json"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    result = CliRunner().invoke(cli, ["predict", "l.json", "people.csv", "--out", "classes.csv"])
    assert result.exit_code == 0, result.output
    assert set(pd.read_csv("classes.csv")["prediction"]) <= {"no", "yes"}
    wrong = CliRunner().invoke(cli, [*arguments, "--target", "wage"])
    assert wrong.exit_code != 0
    assert "cannot be used with --formula" in wrong.output


def test_without_privacy_a_poisson_fit_equals_statsmodels():
    frame = people(3000).assign(visits=np.random.default_rng(3).poisson(2.0, 3000), years=2.0)
    model = dpem.DPPoissonRegression.from_formula(
        "visits ~ educ + years", **settings(bounds=BOUNDS | {"visits": (0, 99), "years": (1, 9)}), exposure="years"
    ).fit(frame)
    reference = smf.glm("visits ~ educ", frame, family=sm.families.Poisson(), exposure=frame.years).fit()
    assert [model.intercept_, model.coef_[0]] == pytest.approx(reference.params, abs=1e-6)


@pytest.mark.parametrize("name", ["DPLinearRegression", "DPLogisticRegression", "DPPoissonRegression"])
def test_products_with_levels_give_no_warning_of_wide_bounds(name):
    """The products are 0 in nine of ten rows, whatever their bounds are; the bounds of x can be narrowed."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 2, 8000), "g": rng.choice(["a", "b"], 8000, p=[0.9, 0.1])})
    frame["y"] = (rng.random(8000) < 0.3 + 0.2 * frame.x) * 1.0
    for limit, columns in ((2, []), (40, [("x",)])):
        declared = {"bounds": {"x": (-limit, limit), "y": (0, 1)}, "levels": {"g": ["a", "b"]}}
        model = getattr(dpem, name).from_formula("y ~ x * C(g)", epsilon=4.0, delta=1e-6, **declared).fit(frame)
        warned = [diagnostic.columns for diagnostic in model.diagnostics_ if diagnostic.code == "wide-bounds"]
        assert warned == columns
