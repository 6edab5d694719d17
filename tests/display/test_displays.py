"""Pictures of fits and plans: what they draw is what was released, and matplotlib is loaded when they draw."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot
from small_models import BOUNDS, DPMeans, DPTwoClasses, DPTwoComponents, people

from dpem import Budget, DPGaussianMixture, DPStandardScaler
from dpem.display import CoefficientDisplay, EllipseDisplay, MixtureDisplay, PlanDisplay
from dpem.display.base import Display
from dpem.display.coefficients import draw_estimates
from dpem.display.components import covariance_matrices
from dpem.fitting.summary import Estimates
from dpem.paper import DPMissingRegression

PUBLISHED = DPMissingRegression(epsilon=1.0, delta=1e-5, sigma=0.5, method="published", sparsity=2, signal=1.0)
SETTINGS = {"epsilon": 1.0, "delta": 1e-6, "bounds": BOUNDS}


@pytest.fixture(scope="module")
def groups():
    return DPTwoComponents(**SETTINGS).fit(people())


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    pyplot.close("all")


def test_coefficients_are_those_of_the_summary(groups):
    shown = CoefficientDisplay.from_estimator(groups)
    drawn = {}
    for ax in shown.axes_:
        lines = ax.containers[0].lines
        ends = [segment[:, 0] for segment in lines[2][0].get_segments()]
        names = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
        drawn |= dict(zip(names, zip(lines[0].get_xdata(), ends, strict=True), strict=True))
    assert set(drawn) == set(BOUNDS)
    for name, (low, high) in zip(groups.summary().index, groups.conf_int(), strict=True):
        value, ends = drawn[name]
        assert value == pytest.approx(groups.summary().estimate[name])
        assert ends.tolist() == pytest.approx([low, high])
    assert shown.figure_ is shown.ax_.figure


def test_some_coefficients_on_given_axes(groups):
    ax = pyplot.subplots()[1]
    shown = CoefficientDisplay.from_estimator(groups, ax=ax, names=["visits"])
    assert shown.ax_ is ax
    assert len(ax.get_yticklabels()) == 1
    with pytest.raises(ValueError, match="'hat' is not"):
        CoefficientDisplay.from_estimator(groups, names=["hat"])


def test_the_paper_s_coefficients_have_their_threshold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 4))
    model = DPMissingRegression(epsilon=1.0, delta=1e-5, sigma=0.5).fit(X, X[:, 0] + 0.5 * rng.standard_normal(2000))
    shown = CoefficientDisplay.from_estimator(model)
    assert len(shown.ax_.get_lines()) >= 3


def test_a_panel_for_each_group(groups):
    shown = MixtureDisplay.from_estimator(groups)
    assert [ax.get_title() for ax in shown.axes_] == ["component 1: 70 %", "component 2: 30 %"]
    drawn = shown.axes_[0].containers[0].lines[0].get_xdata()
    assert np.allclose(drawn, groups.means_ / np.array([100, 4, 50]))
    classes = DPTwoClasses(**SETTINGS).fit(people())
    bars = MixtureDisplay.from_estimator(classes).axes_[0].patches
    assert np.allclose([bar.get_width() for bar in bars], classes._profile().centre[0] / [100, 4, 50])
    with pytest.raises(ValueError, match="axes must have length 2, one entry for each panel; got 1"):
        MixtureDisplay.from_estimator(groups, axes=[pyplot.subplots()[1]])


def outside(figure):
    """Labels and titles that reach beyond the figure; numbers at ticks beyond the limits are not drawn."""
    figure.canvas.draw()
    whole = figure.bbox
    texts = [t for t in figure.findobj(matplotlib.text.Text) if len(t.get_text()) > 12 and "$" not in t.get_text()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts]
    return [s for s, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > whole.x1 + 1 or b.y1 > whole.y1 + 1]


LONG = "share of rows put into another class than without privacy, of those with a response"


def long_plan():
    prediction = SimpleNamespace(median=1.0, low=0.5, high=2.0, quantity=LONG)
    return PlanDisplay.from_estimator(SimpleNamespace(plan=lambda n, d: SimpleNamespace(prediction=prediction)), [1, 2])


def long_names():
    estimates = Estimates.noisy((f"the intercept, {LONG}", LONG, "x"), np.array([60.0, 0.1, 0.2]), 0.01)
    return Display(draw_estimates({"": estimates}, None, None))


@pytest.mark.parametrize("draw", [long_plan, long_names])
def test_long_titles_and_labels_are_not_cut(draw):
    assert outside(draw().figure_) == []


def test_parameters_of_different_sizes_have_separate_panels():
    estimates = Estimates.noisy(("intercept", "age", "dose"), np.array([60.0, 0.1, -0.2]), 0.01)
    axes = draw_estimates({"": estimates}, None, None)
    names = [[label.get_text() for label in ax.get_yticklabels()] for ax in axes]
    assert names == [["intercept"], ["age", "dose"]]
    assert max(map(abs, axes[1].get_xlim())) < 1


def test_several_fits_side_by_side(groups):
    other = DPTwoComponents(**{**SETTINGS, "epsilon": 0.5}).fit(people())
    shown = CoefficientDisplay.from_estimators({"ε = 1": groups, "ε = 0.5": other}, names=["age", "visits"])
    labels = [text.get_text() for text in shown.axes_[0].get_legend().get_texts()]
    assert labels == ["ε = 1", "ε = 0.5"]
    drawn = [container.lines[0].get_xdata() for container in shown.axes_[0].containers]
    assert drawn[1][0] == pytest.approx(other.summary().estimate["age"])


def test_a_mixture_s_panel_is_filled(groups):
    shown = MixtureDisplay.from_estimator(groups)
    profile, width = groups._profile(), np.array([100, 4, 50])
    ends = (profile.centre + profile.spread) / width, (profile.centre - profile.spread) / width
    low, high = shown.axes_[0].get_xlim()
    assert (ends[0].max() - ends[1].min()) / (high - low) > 0.85


class TestEllipses:
    def fitted(self, covariance_type="full"):
        rng = np.random.default_rng(0)
        rows = np.where(rng.random((4000, 1)) < 0.4, 30.0, 60.0) + rng.normal(0, 6, (4000, 3))
        given = {"epsilon": 4.0, "delta": 1e-6, "bounds": (0, 100), "random_state": 0}
        return DPGaussianMixture(2, covariance_type=covariance_type, **given).fit(rows)

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_axes_of_an_ellipse_are_standard_deviations(self):
        model = self.fitted("diag")
        shown = EllipseDisplay.from_estimator(model, pairs=[("x0", "x2")])
        (ax,) = shown.axes_
        inner = ax.patches[0]
        assert tuple(inner.get_center()) == pytest.approx(model.means_[0, [0, 2]])
        sizes = sorted((inner.get_width(), inner.get_height()))
        assert sizes == pytest.approx(sorted(2 * np.sqrt(model.covariances_[0, [0, 2]])))
        cross = ax.containers[0].lines[2][0].get_segments()[0][:, 0]
        error = model.summary().standard_error["component 1: mean of x0"]
        assert np.diff(cross)[0] == pytest.approx(2 * 1.96 * error)
        assert len(EllipseDisplay.from_estimator(model).axes_) == 3
        with pytest.raises(ValueError, match="'hat' is not"):
            EllipseDisplay.from_estimator(model, pairs=[("x0", "hat")])
        with pytest.raises(ValueError, match="axes must have length 1, one entry for each panel; got 2"):
            EllipseDisplay.from_estimator(model, pairs=[("x0", "x1")], axes=pyplot.subplots(1, 2)[1])

    def test_other_models_are_refused(self, groups):
        with pytest.raises(ValueError, match="a fitted Gaussian mixture, got DPTwoComponents"):
            EllipseDisplay.from_estimator(groups)

    def test_every_type_of_covariance_is_a_matrix(self):
        full, several = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])

        def matrices(kind, covariances):
            return covariance_matrices(SimpleNamespace(covariance_type=kind, covariances_=covariances), 2, 2)

        assert np.array_equal(matrices("tied", full), [full] * 2)
        assert np.array_equal(matrices("diag", several), [np.diag([1.0, 2.0]), np.diag([3.0, 4.0])])
        assert np.array_equal(matrices("full", np.array([full, full])), [full, full])


def test_plans_over_epsilon_and_over_rows():
    planned = PlanDisplay.from_estimator(DPMeans(**SETTINGS), 3000, epsilon=[0.5, 1, 2])
    assert (planned.ax_.get_xlabel(), planned.ax_.lines[0].get_xdata().tolist()) == ("ε", [0.5, 1, 2])
    rows = PlanDisplay.from_estimator(DPMeans(**SETTINGS), [1000, 2000])
    assert (rows.ax_.get_xlabel(), rows.ax_.lines[0].get_xdata().tolist()) == ("rows", [1000, 2000])
    assert rows.ax_.get_title(loc="left") == "width of an interval"


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: CoefficientDisplay.from_estimator(DPStandardScaler()), "got DPStandardScaler"),
        (lambda: MixtureDisplay.from_estimator(DPMeans(**SETTINGS).fit(people(500))), "with components, got DPMeans"),
        (lambda: PlanDisplay.from_estimator(DPStandardScaler(), 100), "plan method, got DPStandardScaler"),
        (lambda: PlanDisplay.from_estimator(PUBLISHED, 2000, 4, epsilon=[1.0]), "must make predictions"),
    ],
)
def test_objects_that_cannot_be_drawn_are_refused(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, dpem.display; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


class TestNotebook:
    def test_a_fitted_model_shows_check_parameters_and_guarantee(self, groups):
        html = groups._repr_html_()
        assert groups.fit_check_.verdict in html
        assert "dose, in milligrams a day" in html
        assert "(1, 1e-06)-differentially private" in html
        assert DPMeans(**SETTINGS)._repr_html_().startswith("<pre>DPMeans(")

    def test_a_plan_shows_steps_shares_and_prediction(self, groups):
        html = groups.plan_._repr_html_()
        for words, _ in groups.plan_.shares():
            assert words in html
        assert "90 %" in html
        assert "nine fits of ten: 0.05 to 0.2" in html

    def test_a_guarantee_and_a_budget(self, groups):
        assert "#a3123a" not in groups.guarantee_._repr_html_()
        seeded = DPMeans(**SETTINGS, random_state=0).fit(people(500))
        assert "NOT PRIVATE" in seeded.guarantee_._repr_html_()
        budget = Budget(2.0, 1e-4)
        DPMeans(**SETTINGS, budget=budget).fit(people(500))
        assert "of 2 spent in 1 fit, at" in budget._repr_html_()

    def test_texts_are_escaped(self):
        rows = people(500).rename(columns={"age": "<b>"})
        bounds = {"<b>": (0, 100), **{name: ends for name, ends in BOUNDS.items() if name != "age"}}
        assert "<b>" not in DPMeans(**{**SETTINGS, "bounds": bounds}).fit(rows)._repr_html_()
