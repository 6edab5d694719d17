"""Pictures of fits and plans: what they draw is what was released, and matplotlib is loaded when they draw."""

import math
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot
from small_models import BOUNDS, DPAnswers, DPGroups, DPMeans, people

from dpem import Budget, DPStandardScaler
from dpem.display import CoefficientDisplay, MixtureDisplay, PlanDisplay, PriceDisplay
from dpem.paper import DPMissingRegression

PAPER = DPMissingRegression(epsilon=1.0, delta=1e-5, sigma=0.5)
GIVEN = {"epsilon": 1.0, "delta": 1e-6, "bounds": BOUNDS}


@pytest.fixture(scope="module")
def groups():
    return DPGroups(**GIVEN).fit(people())


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    pyplot.close("all")


def test_coefficients_are_those_of_the_summary(groups):
    shown = CoefficientDisplay.from_estimator(groups)
    lines = shown.ax_.containers[0].lines
    assert np.allclose(lines[0].get_xdata(), groups.summary().estimate)
    ends = np.array([segment[:, 0] for segment in lines[2][0].get_segments()])
    assert np.allclose(ends, groups.conf_int())
    assert [label.get_text() for label in shown.ax_.get_yticklabels()] == list(BOUNDS)
    assert shown.figure_ is shown.ax_.figure


def test_some_coefficients_on_axes_of_one_s_own(groups):
    ax = pyplot.subplots()[1]
    shown = CoefficientDisplay.from_estimator(groups, ax=ax, names=["visits"])
    assert shown.ax_ is ax
    assert len(ax.get_yticklabels()) == 1
    with pytest.raises(ValueError, match="'hat' is none"):
        shown.plot(names=["hat"])


def test_the_paper_s_coefficients_have_their_threshold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 4))
    model = DPMissingRegression(epsilon=1.0, delta=1e-5, sigma=0.5).fit(X, X[:, 0] + 0.5 * rng.standard_normal(2000))
    shown = CoefficientDisplay.from_estimator(model)
    assert len(shown.ax_.get_lines()) >= 3
    PriceDisplay.from_estimator(model)


def test_a_panel_for_each_group(groups):
    shown = MixtureDisplay.from_estimator(groups)
    assert [ax.get_title() for ax in shown.axes_] == ["group 1: 70 %", "group 2: 30 %"]
    drawn = shown.axes_[0].containers[0].lines[0].get_xdata()
    assert np.allclose(drawn, groups.means_ / np.array([100, 4, 50]))
    bars = MixtureDisplay.from_estimator(DPAnswers(**GIVEN).fit(people()))
    assert np.allclose([bar.get_width() for bar in bars.axes_[0].patches], bars.profile.centre[0] / [100, 4, 50])
    with pytest.raises(ValueError, match="one for each of 2 groups, got 1"):
        shown.plot([pyplot.subplots()[1]])


def test_shares_of_the_price_add_up(groups):
    shown = PriceDisplay.from_estimator(groups)
    assert math.isclose(sum(shown.shares), 1.0)
    assert [bar.get_width() for bar in shown.ax_.patches] == pytest.approx([90, 10])


def test_plans_over_epsilon_and_over_rows():
    planned = PlanDisplay.from_estimator(DPMeans(**GIVEN), 3000, epsilon=[0.5, 1, 2])
    assert (planned.along, planned.x.tolist()) == ("ε", [0.5, 1, 2])
    assert (planned.low <= planned.median).all()
    rows = PlanDisplay.from_estimator(DPMeans(**GIVEN), [1000, 2000])
    assert (rows.along, rows.x.tolist()) == ("rows", [1000, 2000])
    assert rows.ax_.get_ylabel() == "width of an interval"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: CoefficientDisplay.from_estimator(DPStandardScaler()), "got DPStandardScaler"),
        (lambda: MixtureDisplay.from_estimator(DPMeans(**GIVEN).fit(people(500))), "finds groups, got DPMeans"),
        (lambda: PriceDisplay.from_estimator(DPMeans(**{**GIVEN, "epsilon": math.inf}).fit(people(500))), "no price"),
        (lambda: PlanDisplay.from_estimator(DPStandardScaler(), 100), "plan method, got DPStandardScaler"),
        (lambda: PlanDisplay.from_estimator(PAPER, 2000, 4, epsilon=[1.0]), "makes no prediction"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(made, words):
    with pytest.raises(ValueError, match=words):
        made()


def test_matplotlib_waits_until_something_is_drawn():
    code = "import sys, dpem.display; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


class TestNotebook:
    def test_a_fitted_model_shows_check_parameters_and_statement(self, groups):
        html = groups._repr_html_()
        assert groups.fit_check_.verdict in html
        assert "dose, in milligrams a day" in html
        assert "(1, 1e-06)-differentially private" in html
        assert DPMeans(**GIVEN)._repr_html_().startswith("<pre>DPMeans(")

    def test_a_plan_shows_steps_shares_and_prediction(self, groups):
        html = groups.plan_._repr_html_()
        for words, _ in groups.plan_.shares():
            assert words in html
        assert "90 %" in html
        assert "nine fits of ten: 0.05 to 0.2" in html

    def test_a_guarantee_and_a_budget(self, groups):
        assert "#a3123a" not in groups.guarantee_._repr_html_()
        seeded = DPMeans(**GIVEN, random_state=0).fit(people(500))
        assert "NOT PRIVATE" in seeded.guarantee_._repr_html_()
        budget = Budget(2.0, 1e-4)
        DPMeans(**GIVEN, budget=budget).fit(people(500))
        assert "of 2 spent in 1 fit, at" in budget._repr_html_()

    def test_texts_are_escaped(self):
        rows = people(500).rename(columns={"age": "<b>"})
        bounds = {"<b>": (0, 100), **{name: ends for name, ends in BOUNDS.items() if name != "age"}}
        assert "<b>" not in DPMeans(**{**GIVEN, "bounds": bounds}).fit(rows)._repr_html_()
