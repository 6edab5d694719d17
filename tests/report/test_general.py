"""The report of any estimator: the first screen, the estimates, the components, the plan."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
from small_models import BOUNDS, DPMeans, DPTwoClasses, DPTwoComponents, people
from test_report import Outline, words

from dpem import DPGaussianMixture, DPLatentClass, DPLinearRegression, DPMixtureRegression, DPStandardScaler, Ledger
from dpem._html import number, round_to
from dpem.fitting.check import check_lead
from dpem.fitting.summary import GIVEN as GIVEN_BY_USER
from dpem.fitting.summary import Setting
from dpem.paper import DPSymmetricMixture
from dpem.persistence import fingerprint
from dpem.privacy import together
from dpem.report import About, facts, render
from dpem.report.charts import most_different_columns

SETTINGS = {"epsilon": 1.0, "delta": 1e-6, "bounds": BOUNDS}


@pytest.fixture(scope="module")
def fitted():
    return {kind.__name__: kind(**SETTINGS).fit(people()) for kind in (DPMeans, DPTwoComponents, DPTwoClasses)}


@pytest.fixture(params=["DPMeans", "DPTwoComponents", "DPTwoClasses"])
def model(request, fitted):
    return fitted[request.param]


def test_the_first_screen_has_guarantee_check_and_purpose(model, tmp_path):
    state = Ledger(f"sqlite:///{tmp_path}/b.db").open("patients", 2.0, 1e-5).state()
    page = render(model, about=About("patients", "2031-01-31", "table <3>", "sqlite:///b.db", state))
    first = words(page.split("</header>")[0] + "</header></main></body></html>")
    assert "any one row is protected within ε = 1, δ = 10⁻⁶" in first
    assert model.fit_check_.verdict in first
    for line in ("patients", "2031-01-31", "table <3>", "sqlite:///b.db", "ε = 2 of 2 at δ = 10⁻⁵"):
        assert line in first
    assert "<3>" not in page


def test_estimates_and_intervals_are_in_the_table_s_units(model):
    shown = words(render(model))
    for row in model.summary().itertuples():
        value, low, high = (round_to(part, row.standard_error) for part in (row.estimate, row.lower, row.upper))
        assert value in shown
        assert f"{low} to {high}" in shown


def test_the_plan_and_its_prediction_are_shown(model):
    shown = words(render(model))
    for release in model.releases_:
        assert release.query in shown
    assert "width of an interval0.1, and between 0.05 and 0.2 in nine fits of ten" in shown
    assert "fits that find no structureabout 1 of 100" in shown
    for step, _ in model.plan_.shares():
        assert step in shown
    assert Setting("bounds of age", "0 to 100", GIVEN_BY_USER) in model._fit_summary().settings
    assert "bounds of age0 to 100given by the user" in shown


def test_each_component_is_drawn(fitted):
    page = render(fitted["DPTwoComponents"])
    assert page.count('id="component-') == page.count('class="group"') == 2
    assert "component 2: 30 % of the rows" in page
    assert "The groups" not in render(fitted["DPMeans"])
    assert '<rect class="measure"' in render(fitted["DPTwoClasses"])
    Outline(page)


def test_the_columns_that_differ_most_are_drawn():
    names = [f"c{j}" for j in range(20)]
    rows = pd.DataFrame(np.full((500, 20), 0.5), columns=names)
    rows["c17"] = 0.9
    model = DPTwoComponents(epsilon=5.0, delta=1e-6, bounds=(0, 1)).fit(rows)
    assert 17 in most_different_columns(model._profile())
    assert len(most_different_columns(model._profile())) == 12
    assert "the 12 columns that differ most" in render(model)


def test_a_failed_fit_check_is_on_the_first_screen(fitted):
    model = copy.copy(fitted["DPMeans"])
    model.fit_check_ = check_lead(0.01, 0.05, "a mean of zero", "Ask for more rows.")
    first = render(model).split("</header>")[0]
    assert 'class="check poor"' in first
    assert "Ask for more rows." in first
    assert 'class="check good"' in render(fitted["DPMeans"]).split("</header>")[0]


def test_a_user_s_model_has_a_fingerprint(model):
    assert fingerprint(model) in render(model)


def test_the_statement_includes_the_scaler_s_price():
    X = np.random.default_rng(0).normal(50, 10, size=(3000, 3))
    scaler = DPStandardScaler(epsilon=0.5, delta=1e-5, bounds=(0, 100)).fit(X)
    model = DPSymmetricMixture(epsilon=1.0, delta=1e-5, sigma=0.5).fit(scaler.transform(X))
    both = together([scaler.guarantee_, model.guarantee_])
    page = render(model, scaler)
    shown = words(page)
    assert str(both) in shown
    assert str(model.guarantee_) not in shown
    first = words(page.split("</header>")[0] + "</header></main></body></html>")
    assert f"ε = {number(facts.rounded_up(both.epsilon), 5)}" in first
    assert "model and scaling together" in first


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0, 12.0, 50.0, 1000.0])
def test_no_rate_is_rounded_to_100_percent(epsilon):
    message = facts.guess_rate(epsilon, 1e-6)
    assert "100.0" not in message
    if "of 100" in message:
        assert float(re.search(r"[\d.]+", message).group()) >= 100 * facts.best_guess(epsilon, 1e-6)


def test_latent_classes_show_their_answers():
    rng = np.random.default_rng(0)
    rows = (rng.random((5000, 4)) < np.where(rng.random(5000) < 0.3, 0.9, 0.2)[:, None]).astype(float)
    model = DPLatentClass(2, epsilon=2.0, delta=1e-6, levels={f"x{j}": [0, 1] for j in range(4)}).fit(rows)
    page = render(model)
    assert page.index("<h2>The classes") < page.index("<h2>Estimates")
    assert page.count('class="group"') == 2
    assert words(page).count("x3=1") >= 3
    assert fingerprint(model) in page


def test_components_show_centres_and_spreads_in_units():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        rng.normal(np.where(rng.random((6000, 1)) < 0.5, 30.0, 70.0), 5.0, (6000, 2)), columns=["a", "b"]
    )
    model = DPGaussianMixture(2, epsilon=2.0, delta=1e-6, bounds=(0, 100), random_state=0).fit(rows)
    profile = model._profile()
    assert np.allclose(np.sort(profile.centre[:, 0]), [30, 70], atol=5)
    assert np.allclose(profile.spread, 5.0, atol=3)
    assert (profile.low.tolist(), profile.high.tolist()) == ([0, 0], [100, 100])


def test_standardised_slopes_share_one_scale():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 80, 8000), "dose": rng.uniform(0, 1, 8000)})
    side = np.where(rng.random(8000) < 0.5, 1.0, -1.0)
    arguments = {"epsilon": 2.0, "delta": 1e-6, "bounds": {"age": (0, 100), "dose": (0, 1)}, "y_bounds": (-100, 100)}
    line = DPLinearRegression(**arguments).fit(X, 0.5 * X.age + 10 * X.dose + rng.normal(0, 3, 8000))
    assert line._fit_summary().estimates.scale.tolist() == [1, 50, 0.5, 1]
    assert "All rows share one scale" in render(line)
    lines = DPMixtureRegression(2, **arguments).fit(X, side * (0.8 * X.age.to_numpy() + 5) + rng.normal(0, 3, 8000))
    profile = lines._profile()
    assert np.allclose(profile.centre, lines.coef_ * [50, 0.5])
    assert render(lines).count('class="group"') == 2
