"""DPGaussianMixture: the optimum of EM without privacy, components found under privacy, and its diagnostics."""

import math
import warnings
from dataclasses import replace

import array_api_compat.numpy as xp
import numpy as np
import pandas as pd
import pytest
from cheaper import small_surrogate
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Reference

from dpem import Budget, DPGaussianMixture
from dpem.audit.neighbours import Table
from dpem.audit.replay import replay
from dpem.fitting.check import check_lead
from dpem.fitting.diagnostics import FitWarning
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Margins, Spreads
from dpem.models.gaussian_mixture.model import names
from dpem.models.gaussian_mixture.sketch_fit import Components, Target, descend, fitted
from dpem.tables.schema import Schema

PRIVACY = {"epsilon": 1.0, "delta": 1e-6}


def three_components(n=3000, seed=0, weights=(0.5, 0.3, 0.2)):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 2.0], [0.0, 6.0, -3.0]])
    label = rng.choice(3, size=n, p=weights)
    return centres[label] + rng.standard_normal((n, 3)) * [1.0, 0.8, 1.2], label


BOUNDS = (np.array([-8.0, -8.0, -10.0]), np.array([14.0, 14.0, 10.0]))


@pytest.mark.parametrize("kind", TYPES)
def test_without_privacy_the_optimum_is_that_of_scikit_learn(kind):
    X, _ = three_components(800)
    model = DPGaussianMixture(3, kind, epsilon=math.inf, delta=1e-6, bounds=(-40, 40)).fit(X)
    known = Reference(3, covariance_type=kind, n_init=5, tol=1e-12, reg_covar=0, max_iter=20_000, random_state=0).fit(X)
    assert model.converged_
    assert model.score(X) == pytest.approx(known.score(X), abs=1e-6)
    order = np.argsort(-known.weights_)
    assert np.allclose(model.means_, known.means_[order], atol=1e-3)
    assert np.allclose(model.score_samples(X), known.score_samples(X), atol=1e-2)
    assert np.allclose(model.predict_proba(X), known.predict_proba(X)[:, order], atol=1e-2)
    errors = model.summary().standard_error
    assert (errors[:3] < 0.03).all()
    assert (model.summary().privacy == 0).all()


def test_without_privacy_the_best_of_several_optima_is_found():
    """Five components of unequal size: EM from a single start of scikit-learn misses one."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(5, 3)) * 3
    X = centres[rng.choice(5, size=1500, p=[0.4, 0.3, 0.15, 0.1, 0.05])] + 0.6 * rng.standard_normal((1500, 3))
    model = DPGaussianMixture(5, epsilon=math.inf, delta=1e-6, bounds=(-15, 15), check=False).fit(X)
    known = Reference(5, covariance_type="diag", n_init=10, tol=1e-10, reg_covar=0, max_iter=5000, random_state=0).fit(
        X
    )
    assert model.score(X) > known.score(X) - 1e-6


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_rows_without_values_leave_the_shares_unchanged(epsilon):
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=6000)
    X = rng.standard_normal((6000, 3)) + 4 * label[:, None]
    given = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-8, 12), "check": False, "random_state": 1}
    whole = DPGaussianMixture(2, **given).fit(X)
    X = np.vstack([X, np.full((2571, 3), np.nan)])  # 30 % of the rows
    model = DPGaussianMixture(2, **given).fit(X)
    assert np.abs(model.weights_ - 0.5).max() < 0.02
    assert np.abs(np.sort(model.means_, axis=0) - np.sort(whole.means_, axis=0)).max() < (1e-3 if epsilon > 9 else 0.15)


@pytest.mark.parametrize("kind", TYPES)
def test_private_components_are_near_the_truth_in_the_tables_units(kind):
    X, label = three_components()
    model = DPGaussianMixture(3, kind, **PRIVACY, bounds=BOUNDS, random_state=1).fit(X)
    assert adjusted_rand_score(label, model.predict(X)) > 0.93
    truth = np.array([X[label == k].mean(axis=0) for k in range(3)])
    rows, columns = linear_sum_assignment(((truth[:, None] - model.means_[None]) ** 2).sum(-1))
    assert np.abs(truth[rows] - model.means_[columns]).max() < 0.4
    assert np.abs(np.array([0.5, 0.3, 0.2])[rows] - model.weights_[columns]).max() < 0.04
    assert model.fit_check_.better
    drawn, group = model.sample(2000, random_state=0)
    assert adjusted_rand_score(group, model.predict(drawn)) > 0.9


def test_components_are_found_where_values_are_missing():
    X, label = three_components(6000)
    rng = np.random.default_rng(5)
    X[rng.random(X.shape) < 0.2] = np.nan
    for kind in ("diag", "full"):
        model = DPGaussianMixture(3, kind, **PRIVACY, bounds=BOUNDS, random_state=2).fit(X)
        truth = np.array([np.nanmean(X[label == k], axis=0) for k in range(3)])
        nearest = np.abs(truth[:, None] - model.means_[None]).max(axis=-1).min(axis=1)
        assert nearest.max() < 0.5, kind
        assert adjusted_rand_score(label, model.predict(X)) > 0.75


def test_auto_finds_three_components_and_one():
    X, _ = three_components(6000)
    found = DPGaussianMixture("auto", **PRIVACY, bounds=BOUNDS, random_state=3).fit(X)
    assert found.n_components_ == 3
    assert np.argmin(found.n_components_scores_) == 4  # after one correlated Gaussian, independent columns, 1 and 2
    one = np.random.default_rng(0).standard_normal((6000, 3))
    assert DPGaussianMixture("auto", **PRIVACY, bounds=BOUNDS, random_state=3).fit(one).n_components_ == 1


def test_auto_finds_the_number_of_components_where_values_are_missing():
    X, _ = three_components(8000)
    X[np.random.default_rng(4).random(X.shape) < 0.2] = np.nan
    model = DPGaussianMixture("auto", **PRIVACY, bounds=BOUNDS, random_state=3).fit(X)
    assert model.n_components_ == 3


def test_the_fit_check_fails_where_there_are_no_components():
    one = np.random.default_rng(1).standard_normal((3000, 3))
    model = DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=4).fit(one)
    assert "no improvement over" in model.fit_check_.verdict
    assert "fit-check" in {own.code for own in model.diagnostics_}


def test_intervals_cover_most_means_and_are_computed_once():
    X, label = three_components(4000, seed=8)
    model = DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=5).fit(X)
    table = model.summary()
    assert table.shape[0] == 3 + 9 + 9
    assert (table.privacy >= 0).all()
    order = np.argsort(-np.bincount(label))
    truth = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 2.0], [0.0, 6.0, -3.0]])[order].ravel()
    inside = (truth > table.lower.iloc[3:12]) & (truth < table.upper.iloc[3:12])
    assert inside.mean() >= 0.75
    assert model.conf_int() is not model.conf_int()
    assert model._uncertainty_ is model._errors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_components": 0}, "n_components must be"),
        ({"n_components": "three"}, "n_components must be"),
        ({"n_components": 5000}, "n_components must be at most the number of rows, got 5000 for 300 rows"),
        ({"covariance_type": "round"}, "covariance_type must be one of spherical, diag, tied, full, got 'round'"),
        ({"bounds": None}, "bounds must be given"),
    ],
)
def test_refusals_spend_nothing(change, words):
    budget = Budget(2.0, 1e-5)
    X, _ = three_components(300)
    with pytest.raises(ValueError, match=words):
        DPGaussianMixture(**{**PRIVACY, "bounds": BOUNDS, "budget": budget, **change}).fit(X)
    assert budget.n_charges == 0


@pytest.mark.filterwarnings("ignore:expect little more")
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_extreme_tables_are_fitted_without_numerical_warnings(kind, monkeypatch):
    small_surrogate(monkeypatch)
    rng = np.random.default_rng(0)
    odd = rng.uniform(0, 1, (300, 2))
    odd[:6] = [[np.inf, 0], [-np.inf, np.nan], [1e308, -1e308], [np.nan, np.nan], [5e-324, 0], [1e300, 1e300]]
    tables = [odd, np.full((300, 2), np.nan), np.ones((300, 2)), np.tile([[0.0, 1.0], [1.0, 0.0]], (150, 1))]
    for rows in tables:
        frame = pd.DataFrame(rows, columns=["a", "b"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", FitWarning)
            warnings.filterwarnings("ignore", "random_state makes|expect little more")
            model = DPGaussianMixture(2, kind, **PRIVACY, bounds=(0, 1), random_state=1).fit(frame)
        assert np.isfinite(model.means_).all()
        assert np.isfinite(model.covariances_).all()
        assert model.predict(frame).shape == (300,)
    one_column = DPGaussianMixture(2, kind, **PRIVACY, bounds=(0, 1), random_state=1).fit(frame[["a"]])
    assert one_column.means_.shape == (2, 1)


def test_frames_sparse_and_fortran_arrays_give_the_same_fit():
    """With little noise, as sums that differ in their last bit could otherwise lead to another optimum."""
    X, _ = three_components(600)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    little = {"epsilon": 10.0, "delta": 1e-6, "random_state": 6}
    here = DPGaussianMixture(3, **little, bounds=BOUNDS).fit(X)
    named = {name: (low, high) for name, low, high in zip("abc", *BOUNDS, strict=True)}
    for rows, bounds in ((frame, named), (sparse.csr_matrix(X), BOUNDS), (np.asfortranarray(X), BOUNDS)):
        other = DPGaussianMixture(3, **little, bounds=bounds).fit(rows)
        assert np.allclose(other.means_, here.means_, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_replays_on_neighbours_stay_within_the_sensitivities(kind, monkeypatch):
    small_surrogate(monkeypatch)
    X = three_components(100)[0][:, :2]
    X[::9, 1] = np.nan
    estimator = DPGaussianMixture(2, kind, epsilon=4.0, delta=1e-4, bounds=(-10, 14))
    verdict = replay(estimator, Table("as drawn", X, None), missing=True, from_neighbours=False)
    assert verdict.faults == []
    assert max(verdict.used.values()) > 0.45


@pytest.mark.parametrize("variances", [1, 3])
def test_the_gradient_of_the_sketch_fit_is_the_derivative_of_its_loss(variances):
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((30, 3))
    damping = 0.5 * frequencies**2 if variances == 3 else 0.5 * np.sum(frequencies**2, axis=1, keepdims=True)
    values = rng.standard_normal(30) + 1j * rng.standard_normal(30)
    target = Target(values, frequencies, damping, np.full(30, 0.3), np.full(3, 0.3), -0.5, rng.standard_normal((9, 3)))
    point = rng.standard_normal(2 + 6 + 2 * variances)
    steps = 1e-6 * np.eye(len(point))
    numeric = [(target.loss(point + h).loss - target.loss(point - h).loss) / 2e-6 for h in steps]
    assert np.allclose(target.loss(point).gradient, numeric, atol=1e-4)


def test_the_exact_sketch_of_a_mixture_gives_its_parameters():
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((200, 2))
    means, variances = (
        np.array([[1.0, 0.5], [-1.0, 0.0], [0.5, -1.2]]),
        np.array([[0.2, 0.3], [0.3, 0.2], [0.25, 0.25]]),
    )
    waves = np.exp(1j * frequencies @ means.T - 0.5 * frequencies**2 @ variances.T)
    places = rng.standard_normal((400, 2))
    values = waves @ [0.5, 0.3, 0.2]
    target = Target(values, frequencies, 0.5 * frequencies**2, np.full(200, 1e-3), np.ones(2), math.log(0.25), places)
    share, found, _ = target.components(fitted(target, 3))
    order = np.argsort(-share)
    assert np.allclose(share[order], [0.5, 0.3, 0.2], atol=0.01)
    assert np.allclose(found[order], means, atol=0.01)


def test_split_and_merge_moves_find_eight_components():
    """On these centres a descent from components placed one by one ends with one between two centres."""
    rng = np.random.default_rng(4)
    means = rng.normal(size=(8, 6))
    means *= 4 / min(np.linalg.norm(means[i] - means[j]) for i in range(8) for j in range(i))
    scale = np.sqrt(means.var(axis=0) + 1)
    means, log_size = means / scale, math.log(np.mean(scale**-2.0))
    lines = rng.normal(size=(80, 6))
    waves = np.vstack([0.7 * f * lines / np.linalg.norm(lines, axis=1, keepdims=True) for f in range(1, 8)])
    damping = 0.5 * np.sum(waves**2, axis=1, keepdims=True)
    values = np.exp(1j * waves @ means.T - damping * math.exp(log_size)).mean(axis=1)
    places = 1.2 * rng.normal(size=(600, 6))
    target = Target(values, waves, damping, np.full(len(waves), 0.01), np.ones(6), log_size, places)
    truth = np.concatenate([np.zeros(8), means.ravel(), np.full(8, log_size)])
    assert target.loss(fitted(target, 8)).loss < descend(target.loss, truth, 40)[0] + 1


def test_components_whose_shares_underflow_can_be_merged():
    components = Components(np.array([1.0, 0.0, 0.0]), np.array([[0.0], [1.0], [3.0]]), np.zeros((3, 1)))
    merged = components.merged(1, 2)
    assert merged.means[:, 0].tolist() == [0.0, 2.0]
    assert np.allclose(merged.log_variances, 0.0)


def test_the_plan_predicts_a_failing_start_and_advises_rows_or_epsilon():
    given = {"delta": 1e-6, "bounds": (-1, 1)}
    poor = DPGaussianMixture(5, epsilon=0.3, **given).plan(1000, 10)
    assert not poor.feasible
    assert "rows or epsilon=" in poor.advice
    good = DPGaussianMixture(5, epsilon=1.0, **given).plan(20_000, 10)
    assert good.feasible
    assert good.prediction.median < 0.03 < poor.prediction.median
    predicted = [
        DPGaussianMixture(5, epsilon=e, **given).plan(4000, 10).prediction.median for e in (0.25, 0.5, 1, 2, 4)
    ]
    assert predicted == sorted(predicted, reverse=True)


def test_independent_columns_are_one_component_and_fail_the_check():
    X, _ = three_components(6000, weights=(0.9, 0.06, 0.04))
    rng = np.random.default_rng(2)
    shuffled = np.column_stack([rng.permutation(column) for column in X.T])
    assert DPGaussianMixture("auto", **PRIVACY, bounds=BOUNDS, random_state=3).fit(shuffled).n_components_ == 1
    checks = [DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=s).fit(shuffled).fit_check_ for s in range(5)]
    assert sum(check.better for check in checks) <= 1  # a fit in about fifty is called better
    assert np.median([check.lead for check in checks]) < 0
    assert all("independent columns" in check.verdict for check in checks)


@pytest.mark.parametrize("value", [0.3, -1.0, math.inf, -math.inf, math.nan])
def test_a_row_counts_in_one_cell_even_if_its_position_overflows(value):
    schema = Schema.of(["x"], {"x": (-1.0, 1.0)}, {})
    for query in (Spreads(schema, np.zeros(1)), Margins(schema, np.zeros(1), np.full(1, 5e-324))):
        with np.errstate(all="ignore"):
            counts = query.contributions(xp, np.array([[value]]), None)
        assert sorted(counts)[-2:] == [0.0, 0.0 if math.isnan(value) else 1.0]
        assert min(counts) == 0.0


def test_the_product_of_margins_multiplies_the_marginal_densities():
    own = Gaussians(np.array([0.3, 0.7]), np.array([[0.2, -0.3], [-0.4, 0.1]]), np.array([[0.02, 0.05], [0.03, 0.01]]))
    rows = np.array([[0.1, 0.2], [np.nan, -0.5], [np.nan, np.nan]])
    each = np.exp(-0.5 * (rows[:, None] - own.means) ** 2 / own.covariances) / np.sqrt(2 * np.pi * own.covariances)
    margins = np.log(np.einsum("k,nkj->nj", own.weights, each))
    assert np.allclose(own.product_of_margins(xp, rows), np.nansum(margins, axis=1))


@pytest.mark.parametrize("seed", [5, 17])
def test_centres_of_a_triangle_are_found_though_second_moments_are_round(seed):
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(3) / 3
    centres = 2.31 * np.column_stack([np.cos(angle), np.sin(angle)])
    label = rng.integers(3, size=2000)
    X = centres[label] + rng.standard_normal((2000, 2))
    model = DPGaussianMixture(3, **PRIVACY, bounds=(-12, 12), random_state=seed, check=False).fit(X)
    assert adjusted_rand_score(label, model.predict(X)) > 0.8


@pytest.mark.filterwarnings("ignore:expect little more")
def test_components_are_numbered_from_1_the_largest_first():
    X, _ = three_components(400)
    model = DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=7).fit(X)
    assert (np.diff(model.weights_) <= 0).all()
    table = model.summary(level=0.999)
    first = ["component 1: share", "component 2: share", "component 3: share", "component 1: mean of x0"]
    assert list(table.index[:4]) == first
    assert table.index[-1] == "component 3: variance of x2"
    bare = table.estimate - 3.29 * table.standard_error
    assert (bare.iloc[12:] < 0).any()  # so the next lines could fail
    assert (table.lower.drop(table.index[3:12]) >= 0).all()
    assert (table.upper.iloc[:3] <= 1).all()
    assert model._profile().labels == ("component 1", "component 2", "component 3")


def test_only_variances_are_declared_positive():
    X, _ = three_components(3000)
    for kind, count in (("full", 18), ("tied", 6)):
        model = DPGaussianMixture(3, kind, **PRIVACY, bounds=BOUNDS, random_state=7, check=False).fit(X)
        called = names(kind, 3, model.schema_.names)[12:]
        assert [what == "positive" for _, what in called] == [": variance" in f": {name}" for name, _ in called]
        assert len(called) == count == len(model.summary()) - 12


def test_a_point_mass_in_a_stable_fit_is_a_note():
    X, _ = three_components(4000)
    clear = DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=1).fit(X)
    assert clear.diagnostics_ == ()
    years = np.column_stack([np.random.default_rng(0).choice([12.0, 16.0], size=6000), np.repeat(X[:3000, 0], 2)])
    years[:, 1] += 4 * (years[:, 0] > 14)
    found = DPGaussianMixture(2, **PRIVACY, bounds=([0, -8], [25, 14]), random_state=1).fit(years).diagnostics_
    assert [(own.code, own.severity, own.columns) for own in found] == [("point-mass", "note", ("x0",))]


def test_a_component_with_hardly_any_rows_is_reported():
    model = DPGaussianMixture(3, **PRIVACY, bounds=BOUNDS, random_state=1).fit(three_components(4000)[0])
    model.theta_ = replace(model.theta_, weights=np.array([0.7, 0.296, 0.004]))
    assert [(own.code, own.severity) for own in model.diagnostics_] == [("tiny-component", "warning")]
    assert "0.4 % of the rows" in str(model.diagnostics_[0])


def test_missed_rows_are_reported():
    """One component for a table with 6 % of its rows far away: it is wide, or the diagnostic is issued."""
    rng = np.random.default_rng(0)
    X = 0.01 * rng.standard_normal((6000, 2))
    X[:360] += 0.9
    model = DPGaussianMixture(1, **PRIVACY, bounds=(-1, 1), random_state=1).fit(X)
    wide = bool(np.all(model.covariances_ > 0.02))
    assert wide or "missed-rows" in {own.code for own in model.diagnostics_}


def test_an_undecided_check_is_a_note_if_components_are_stable():
    model = DPGaussianMixture(2, epsilon=math.inf, delta=1e-6, bounds=BOUNDS).fit(three_components(400)[0])
    for lead, moved, severity in ((0.01, 0.0, "note"), (-0.3, 0.0, "warning"), (0.01, 0.2, "warning")):
        model.fit_check_ = check_lead(lead, 0.05, "one Gaussian", "")
        model.theta_ = replace(model.theta_, moved=moved)
        assert model.diagnostics_[0].severity == severity


@pytest.mark.parametrize(("kind", "epsilon"), [("diag", 1.0), ("full", math.inf)])
def test_a_constant_column_does_not_hide_the_components(kind, epsilon):
    X, label = three_components(4000)
    X[:, 1] = 3.0
    smallest, agreement = [], []
    for seed in range(1 if math.isinf(epsilon) else 5):
        settings = {"epsilon": epsilon, "delta": 1e-6, "bounds": BOUNDS, "check": False, "random_state": seed}
        model = DPGaussianMixture(2, kind, **settings).fit(X)
        smallest.append(model.weights_.min())
        agreement.append(adjusted_rand_score(label == 1, model.predict(X)))
    assert np.median(smallest) > 0.1
    assert np.median(agreement) > 0.5


def test_a_column_without_values_is_named():
    X, _ = three_components(5000)
    X[:, 2] = np.nan
    with pytest.warns(FitWarning, match="Hardly any row has a value in x2"):
        DPGaussianMixture(2, epsilon=5.0, delta=1e-6, bounds=BOUNDS, random_state=1).fit(X)


def test_a_constant_column_takes_no_component_of_its_own():
    """The place of its values in their cell is unknown, so the least variance is as wide as the cell."""
    X, label = three_components(8000)
    X[:, 1], X[:, 2] = 3.0, X[:, 2] - 4 * (label == 2)
    model = DPGaussianMixture(3, **PRIVACY, bounds=(-16, 16), random_state=1).fit(X)
    assert model.weights_.min() > 0.1
    assert adjusted_rand_score(label, model.predict(X)) > 0.8


def test_one_component_warns_only_where_one_gaussian_is_better():
    """Of 60 fits to independent columns a fifth warned; ten of twenty would have probability .3 %."""
    X = np.random.default_rng(0).standard_normal((4000, 2))
    fits = [DPGaussianMixture(1, **PRIVACY, bounds=(-6, 6), random_state=seed).fit(X) for seed in range(20)]
    assert sum(bool(fit.diagnostics_) for fit in fits) <= 9
    X[:, 1] += 2 * X[:, 0]
    found = DPGaussianMixture(1, **PRIVACY, bounds=(-12, 12), random_state=1).fit(X).diagnostics_
    assert [(own.code, own.severity) for own in found] == [("fit-check", "warning")]
    assert "covariance_type='full'" in str(found[0])
