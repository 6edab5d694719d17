"""Tests, contrasts and predictions equal statsmodels' without privacy; with privacy, tests keep their level."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpem
from dpem.fitting.check import check_lead

BOUNDS = {"a": (-6, 6), "b": (-6, 6), "y": (-20, 20), "count": (0, 200)}
LEVELS = {"g": ["n", "s", "w"]}


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.standard_normal(n), "b": rng.standard_normal(n), "g": rng.choice(LEVELS["g"], n)})
    eta = 0.2 + 0.4 * frame.a + 0.3 * (frame.g == "s")
    return frame.assign(
        y=eta + rng.standard_normal(n),
        hit=(rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0,
        count=rng.poisson(np.exp(eta)),
    )


def fits(frame, **more):
    """Each model without privacy, and statsmodels' fit."""
    settings = {"epsilon": math.inf, "delta": 1e-6, "bounds": BOUNDS, "levels": LEVELS} | more
    right = " ~ a + b + C(g)"
    robust = smf.ols("y" + right, frame).fit(use_t=False, cov_type="HC1")
    yield dpem.DPLinearRegression.from_formula("y" + right, **settings), robust
    yield dpem.DPLogisticRegression.from_formula("hit" + right, **settings), smf.logit("hit" + right, frame).fit(disp=0)
    poisson = smf.glm("count" + right, frame, family=sm.families.Poisson()).fit()  # counts are not overdispersed
    yield dpem.DPPoissonRegression.from_formula("count" + right, **settings), poisson


#: statsmodels puts factors first.
ORDER = ["Intercept", "a", "b", "C(g)[T.s]", "C(g)[T.w]"]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["linear", "logistic", "Poisson"])
def test_without_privacy_inference_equals_statsmodels(which):
    frame = rows()
    model, reference = list(fits(frame))[which]
    model.fit(frame)
    # sigma is that of maximum likelihood, n / (n − 5) of statsmodels'; coefficients have robust (HC1) errors
    scale = 2e-3 if which == 0 else 1e-6
    assert list(model.cov_params().columns) == ["intercept", "a", "b", "C(g)=s", "C(g)=w"]
    assert model.cov_params().to_numpy() == pytest.approx(
        reference.cov_params().loc[ORDER, ORDER].to_numpy(), rel=scale, abs=1e-8
    )
    mine, theirs = model.t_test("a = 0.3, a - b = 0"), reference.t_test("a = 0.3, a - b = 0")
    assert mine.effect == pytest.approx(theirs.effect, abs=1e-6)
    assert mine.statistic == pytest.approx(theirs.tvalue.ravel(), rel=scale)
    assert mine.pvalue == pytest.approx(theirs.pvalue, rel=50 * scale, abs=1e-4)
    joint = reference.wald_test(
        np.eye(5)[[reference.params.index.get_loc(name) for name in ORDER[3:]]], use_f=False, scalar=True
    )
    assert model.wald_test("C(g)").statistic == pytest.approx(float(joint.statistic), rel=scale)
    assert model.wald_test("C(g)").df == 2
    new = rows(50, 1)
    predicted, expected = model.get_prediction(new).summary_frame(), reference.get_prediction(new).summary_frame()
    name = "predicted" if "predicted" in expected else "mean"
    assert predicted["mean"].to_numpy() == pytest.approx(expected[name].to_numpy(), abs=1e-6)
    error = expected["se" if "se" in expected else "mean_se"].to_numpy()
    assert predicted["mean_se"].to_numpy() == pytest.approx(error, rel=max(scale, 1e-4))
    if which == 0:
        assert predicted["obs_ci_upper"].to_numpy() == pytest.approx(expected["obs_ci_upper"].to_numpy(), abs=2e-2)
    if which == 2:
        inside = (predicted["obs_ci_lower"] <= new["count"]) & (new["count"] <= predicted["obs_ci_upper"])
        assert inside.mean() >= 0.9  # of 50 counts fewer are held with probability below 0.03; the seed is fixed
    if which == 1:
        effects = model.marginal_effects(frame)
        margins = reference.get_margeff().summary_frame()
        assert effects.loc[["a", "b"], "dy/dx"].to_numpy() == pytest.approx(margins.loc[["a", "b"], "dy/dx"], abs=1e-6)
        assert effects.loc["a", "std err"] == pytest.approx(margins.loc["a", "Std. Err."], rel=1e-3)
        assert len(model.marginal_effects()) == 4


def test_tests_keep_their_level_under_the_null():
    """The coefficient of b is 0. Of 50 private fits about 2.5 are rejected; more than 8 would be with probability below
    0.001 if the level were 5 %. The seeds are fixed.
    """
    rejected = []
    for seed in range(50):
        frame = rows(2000, 100 + seed)[["a", "b", "hit"]]
        settings = {"bounds": BOUNDS, "epsilon": 2.0, "delta": 1e-6, "check": False, "random_state": seed}
        model = dpem.DPLogisticRegression.from_formula("hit ~ a + b", **settings).fit(frame)
        rejected.append(model.t_test("b").pvalue[0] < 0.05)
    assert sum(rejected) <= 8


def test_compare_gives_differences_and_a_joint_test():
    settings = {"bounds": BOUNDS, "epsilon": 3.0, "delta": 1e-6}
    first, second = (
        dpem.DPLinearRegression.from_formula("y ~ a + b", **settings, random_state=seed).fit(rows(4000, seed))
        for seed in (1, 2)
    )
    table, test = dpem.compare(first, second)
    assert list(table.index) == ["intercept", "a", "b"]
    assert table["std err"]["a"] == pytest.approx(math.hypot(first.standard_errors_[1], second.standard_errors_[1]))
    assert test.df == 3
    assert test.pvalue > 1e-4
    worst, _ = dpem.compare(first, second, same_rows=True)
    assert (worst["std err"] > table["std err"]).all()


def test_tables_for_papers_and_for_r():
    frame = rows()
    model = dpem.DPLogisticRegression.from_formula(
        "hit ~ a + C(g)", bounds=BOUNDS, levels=LEVELS, epsilon=2.0, delta=1e-6
    )
    model.fit(frame)
    assert r"\begin{tabular}" in model.summary().as_latex()
    assert "C(g)=s" in model.summary().as_latex()
    assert list(model.tidy().columns)[:3] == ["term", "estimate", "std.error"]
    assert model.glance().loc[0, "nobs"] == 3000
    ends = model.tidy()[["conf.low", "conf.high"]].to_numpy()
    assert ends == pytest.approx(model.conf_int())


def test_wrong_hypotheses_are_refused():
    model = dpem.DPLogisticRegression.from_formula("hit ~ a + b", bounds=BOUNDS, epsilon=2.0, delta=1e-6).fit(rows())
    for wrong in ("nothing = 0", "a =", "a b c", [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="hypotheses must"):
            model.t_test(wrong)


def test_the_complement_of_a_level_and_tables_without_rows_are_refused():
    """In statsmodels ``conf_int(0.05)`` gives 95 % intervals: a user might take 5 % intervals for these."""
    X = np.random.default_rng(0).uniform(size=(50, 2))
    model = dpem.DPLinearRegression(epsilon=math.inf, delta=1e-6, bounds=(0, 1), y_bounds=(0, 1))
    model.fit(pd.DataFrame(X, columns=["x0", "x1"]), X[:, 0])
    for method in (model.conf_int, model.summary, model.t_test("x0 = 1").conf_int):
        with pytest.raises(ValueError, match=r"^level must be the coverage, such as 0\.95, .*; got 0\.05\.$"):
            method(0.05)
    with pytest.raises(ValueError, match=r"^X must have at least one row, got none\.$"):
        model.predict(pd.DataFrame({"x0": [], "x1": []}, dtype=float))


def test_names_of_levels_need_no_backquotes_and_factors_no_parentheses():
    frame = rows()
    model = dpem.DPLogisticRegression.from_formula(
        "hit ~ a + C(g)", epsilon=math.inf, delta=1e-6, bounds=BOUNDS, levels=LEVELS
    ).fit(frame)
    plain, quoted = (model.t_test(text) for text in ("C(g)=s - C(g)=w = 0.1", "`C(g)=s` - `C(g)=w` = 0.1"))
    assert plain.effect == pytest.approx(quoted.effect)
    assert plain.effect[0] == pytest.approx(model.coef_[1] - model.coef_[2])
    assert plain.value[0] == 0.1
    assert model.wald_test("g") == model.wald_test("C(g)")
    with pytest.raises(
        ValueError, match=r"hypotheses must be equations such as 'C.* = 0' in the coefficients 'intercept', 'a'"
    ):
        model.t_test("height = 0")
    for hypotheses, came in ((np.eye(2), r"shape \(2, 2\)"), ([["a", "b", "c"]], "a list")):
        with pytest.raises(ValueError, match=f"one for each coefficient; got {came}"):
            model.wald_test(hypotheses)
    with pytest.raises(ValueError, match="second must be a fitted DPLogisticRegression, got DPLinearRegression"):
        dpem.compare(model, dpem.DPLinearRegression())


def test_a_noisy_fit_check_is_a_note_where_coefficients_are_significant():
    """A check whose noise hides the improvement is a note; one that contradicts the coefficients is a warning."""
    model = dpem.DPLogisticRegression.from_formula("hit ~ a + b", bounds=BOUNDS, epsilon=5.0, delta=1e-6).fit(rows())
    for lead, severity in ((0.01, "note"), (-0.5, "warning")):
        model.fit_check_ = check_lead(lead, 0.02, "the intercept alone", "More rows would help.")
        (diagnostic,) = (diagnostic for diagnostic in model.diagnostics_ if diagnostic.code == "fit-check")
        assert diagnostic.severity == severity
