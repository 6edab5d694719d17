"""DPGaussianMixture: scikit-learn's EM without noise, groups found under privacy, an answer for every table."""

import functools
import math
import warnings

import array_api_compat.numpy as xp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Reference

from dpem import Budget, DPGaussianMixture
from dpem.audit.neighbours import Table
from dpem.audit.replay import replay
from dpem.fitting.diagnostics import FitWarning
from dpem.fitting.step import State
from dpem.models.gaussian_mixture import start_steps as mixture_start
from dpem.models.gaussian_mixture.em_moments import KINDS
from dpem.models.gaussian_mixture.em_steps import EMStep
from dpem.models.gaussian_mixture.estimator import GaussianMixture
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.intervals import kinds, names
from dpem.models.gaussian_mixture.sketch_fit import Target
from dpem.models.gaussian_mixture.sketch_shapes import Diagonal, Shared, Spherical
from dpem.privacy import Account, Curator, SeededNoise
from dpem.queries.schema import Schema
from dpem.tables import ArraySource

GIVEN = {"epsilon": 1.0, "delta": 1e-6}
SIMULATED = pytest.mark.filterwarnings("ignore:random_state makes the noise")


def three_groups(n=3000, seed=0, weights=(0.5, 0.3, 0.2)):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 2.0], [0.0, 6.0, -3.0]])
    label = rng.choice(3, size=n, p=weights)
    return centres[label] + rng.standard_normal((n, 3)) * [1.0, 0.8, 1.2], label


BOUNDS = (np.array([-8.0, -8.0, -10.0]), np.array([14.0, 14.0, 10.0]))


def precisions(kind, covariances):
    return {
        "diag": lambda: 1 / covariances,
        "spherical": lambda: 1 / covariances[:, 0],
        "tied": lambda: np.linalg.inv(covariances[0]),
        "full": lambda: np.linalg.inv(covariances),
    }[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_without_noise_is_one_of_scikit_learn_s(kind):
    rng = np.random.default_rng(0)
    x = np.clip(0.2 * rng.standard_normal((500, 3)) + np.where(rng.random((500, 1)) < 0.3, 0.3, -0.1), -1, 1)
    own = np.full((2, 3), 0.05)
    covariances = own if kind in ("diag", "spherical") else np.array([np.diag(row) + 0.01 for row in own])
    start = Gaussians(np.array([0.4, 0.6]), np.array([[0.2, 0.3, 0.1], [-0.2, 0.0, 0.1]]), covariances)
    schema = Schema.of(["a", "b", "c"], dict.fromkeys("abc", (-1.0, 1.0)), {})
    model = GaussianMixture(schema, 2, kind, np.ones(3))
    begun = State(model.parameters(start, start, np.zeros(0), np.ones(3)), notes={"start": start})
    curator = Curator(ArraySource(x), Account(math.inf, 0.5), SeededNoise(0))
    found = EMStep(math.inf, 1.0).run(curator, model, begun).theta
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = Reference(
            2, covariance_type=kind, weights_init=start.weights, means_init=start.means, reg_covar=0, max_iter=1,
            precisions_init=precisions(kind, covariances), tol=0,
        ).fit(x)  # fmt: skip
    spread = (
        found.covariances[:, 0]
        if kind == "spherical"
        else found.covariances[0]
        if kind == "tied"
        else found.covariances
    )
    assert np.allclose(found.weights, known.weights_, atol=1e-10)
    assert np.allclose(found.means, known.means_, atol=1e-10)
    assert np.allclose(spread, known.covariances_, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_without_privacy_the_optimum_is_scikit_learn_s_from_the_same_start(kind):
    X, _ = three_groups(800)
    X = X * [1, 2, 0.5]
    model = DPGaussianMixture(3, kind, epsilon=math.inf, delta=1e-6, bounds=(-40, 40)).fit(X)
    theta, half = model.theta_, model.schema_.half
    scale = half**2 if theta.covariances.ndim == 2 else np.outer(half, half)
    known = Reference(
        3, covariance_type=kind, weights_init=theta.start_weights, means_init=half * theta.start_means, tol=1e-14,
        precisions_init=precisions(kind, theta.start_covariances * scale), reg_covar=0, max_iter=20_000,
    ).fit(X)  # fmt: skip
    assert model.converged_
    assert model.score(X) == pytest.approx(known.score(X), abs=1e-9)
    assert np.allclose(model.means_, known.means_, atol=3e-5)
    assert np.allclose(model.covariances_, known.covariances_, rtol=3e-5, atol=3e-5)
    assert np.allclose(model.precisions_cholesky_, known.precisions_cholesky_, rtol=3e-5, atol=3e-5)
    assert np.allclose(model.predict_proba(X), known.predict_proba(X), atol=3e-5)
    assert np.allclose(model.score_samples(X), known.score_samples(X), atol=1e-4)


@SIMULATED
@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_found_under_privacy_and_stated_in_units(kind):
    X, label = three_groups()
    model = DPGaussianMixture(3, kind, **GIVEN, bounds=BOUNDS, random_state=1).fit(X)
    assert adjusted_rand_score(label, model.predict(X)) > 0.93
    truth = np.array([X[label == k].mean(axis=0) for k in range(3)])
    rows, columns = linear_sum_assignment(((truth[:, None] - model.means_[None]) ** 2).sum(-1))
    assert np.abs(truth[rows] - model.means_[columns]).max() < 0.4
    assert np.abs(np.array([0.5, 0.3, 0.2])[rows] - model.weights_[columns]).max() < 0.04
    assert model.fit_check_.better
    drawn, group = model.sample(2000, random_state=0)
    assert adjusted_rand_score(group, model.predict(drawn)) > 0.9


@SIMULATED
def test_the_price_is_what_was_planned():
    X, _ = three_groups()
    model = DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=1)
    plan = model.plan(len(X), 3)
    assert model.fit(X).plan_.to_dict()["steps"] == plan.to_dict()["steps"]
    paid = math.fsum(release.price.rho for release in model.releases_)
    assert paid == pytest.approx(plan.price.rho)


@SIMULATED
def test_holes_leave_the_groups_where_they_are():
    X, label = three_groups(6000)
    rng = np.random.default_rng(5)
    X[rng.random(X.shape) < 0.2] = np.nan
    for kind in ("diag", "full"):
        model = DPGaussianMixture(3, kind, **GIVEN, bounds=BOUNDS, random_state=2).fit(X)
        truth = np.array([np.nanmean(X[label == k], axis=0) for k in range(3)])
        nearest = np.abs(truth[:, None] - model.means_[None]).max(axis=-1).min(axis=1)
        assert nearest.max() < 0.5, kind
        assert adjusted_rand_score(label, model.predict(X)) > 0.75


def test_a_diagonal_mixture_with_holes_has_the_analytic_marginal():
    X, _ = three_groups(400)
    model = DPGaussianMixture(2, epsilon=math.inf, delta=1e-6, bounds=BOUNDS, check=False).fit(X)
    row = np.array([[1.0, np.nan, -2.0]])
    each = np.exp(-0.5 * (row - model.means_) ** 2 / model.covariances_) / np.sqrt(2 * np.pi * model.covariances_)
    assert model.score_samples(row)[0] == pytest.approx(np.log(model.weights_ @ each[:, [0, 2]].prod(axis=1)))


@SIMULATED
def test_the_number_of_components_is_found_and_one_group_is_one():
    X, _ = three_groups(6000)
    found = DPGaussianMixture("auto", **GIVEN, bounds=BOUNDS, random_state=3).fit(X)
    assert found.n_components_ == 3
    assert np.argmin(found.n_components_scores_) == 4  # after one correlated Gaussian, independent columns, 1 and 2
    one = np.random.default_rng(0).standard_normal((6000, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        assert DPGaussianMixture("auto", **GIVEN, bounds=BOUNDS, random_state=3).fit(one).n_components_ == 1


@SIMULATED
def test_the_fit_check_speaks_where_there_are_no_groups():
    one = np.random.default_rng(1).standard_normal((3000, 3))
    with pytest.warns(FitWarning, match="no better than"):
        DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=4).fit(one)


@SIMULATED
def test_intervals_hold_most_of_the_truth_and_are_computed_once():
    X, label = three_groups(4000, seed=8)
    model = DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=5).fit(X)
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
    X, _ = three_groups(300)
    with pytest.raises(ValueError, match=words):
        DPGaussianMixture(**{**GIVEN, "bounds": BOUNDS, "budget": budget, **change}).fit(X)
    assert budget.n_charges == 0


@SIMULATED
@pytest.mark.filterwarnings("ignore:The model describes", "ignore:expect little more", "ignore:some groups are heaps")
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_every_table_gets_an_answer_without_a_word_about_values(kind):
    rng = np.random.default_rng(0)
    odd = rng.uniform(0, 1, (300, 2))
    odd[:6] = [[np.inf, 0], [-np.inf, np.nan], [1e308, -1e308], [np.nan, np.nan], [5e-324, 0], [1e300, 1e300]]
    tables = [odd, np.full((300, 2), np.nan), np.ones((300, 2)), np.tile([[0.0, 1.0], [1.0, 0.0]], (150, 1))]
    for rows in tables:
        frame = pd.DataFrame(rows, columns=["a", "b"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", FitWarning)
            warnings.filterwarnings("ignore", "random_state makes|expect little more|some groups are heaps")
            model = DPGaussianMixture(2, kind, **GIVEN, bounds=(0, 1), random_state=1).fit(frame)
        assert np.isfinite(model.means_).all()
        assert np.isfinite(model.covariances_).all()
        assert model.predict(frame).shape == (300,)
    one_column = DPGaussianMixture(2, kind, **GIVEN, bounds=(0, 1), random_state=1).fit(frame[["a"]])
    assert one_column.means_.shape == (2, 1)


@SIMULATED
@pytest.mark.filterwarnings("ignore:The model describes")
def test_all_kinds_of_rows_give_the_same_fit():
    X, _ = three_groups(600)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    here = DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=6).fit(X)
    named = {name: (low, high) for name, low, high in zip("abc", *BOUNDS, strict=True)}
    for rows, bounds in ((frame, named), (sparse.csr_matrix(X), BOUNDS), (np.asfortranarray(X), BOUNDS)):
        other = DPGaussianMixture(3, **GIVEN, bounds=bounds, random_state=6).fit(rows)
        assert np.allclose(other.means_, here.means_, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_a_fit_replayed_on_neighbours_differs_only_as_promised(kind, monkeypatch):
    quick = functools.partial(mixture_start.fitted, restarts=1, exchanges=0)  # post-processing: the same for all
    monkeypatch.setattr(mixture_start, "fitted", quick)
    X = three_groups(100)[0][:, :2]
    X[::9, 1] = np.nan
    estimator = DPGaussianMixture(2, kind, epsilon=4.0, delta=1e-4, bounds=(-10, 14))
    verdict = replay(estimator, Table("as drawn", X, None), missing=True)
    assert verdict.faults == []
    assert max(verdict.used.values()) > 0.45


@pytest.mark.parametrize("family", ["spherical", "diag", "tied", "full"])
def test_the_sketch_s_loss_has_the_gradient_it_states(family):
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((30, 3))
    own = {
        "spherical": Spherical(frequencies, -0.5, np.array([1.0, 2.0, 0.5])),
        "diag": Diagonal(frequencies, -0.5),
        "tied": Shared(frequencies, -0.5, True),
        "full": Shared(frequencies, -0.5, False),
    }[family]
    values = rng.standard_normal(30) + 1j * rng.standard_normal(30)
    target = Target(values, frequencies, np.full(30, 0.3), own, 0.3 * np.eye(3), rng.standard_normal((9, 3)), 0.5)
    point = np.concatenate([rng.standard_normal(2 + 6), own.start(2) + 0.1 * rng.standard_normal(len(own.start(2)))])
    _, gradient = target.loss(point, 2)
    steps = 1e-6 * np.eye(len(point))
    numeric = [(target.loss(point + h, 2)[0] - target.loss(point - h, 2)[0]) / 2e-6 for h in steps]
    assert np.allclose(gradient, numeric, atol=1e-5)


def test_the_density_of_many_rows_is_that_of_each():
    rng = np.random.default_rng(1)
    own = Gaussians(np.array([0.3, 0.7]), rng.uniform(-0.5, 0.5, (2, 3)), np.array([0.1 * np.eye(3) + 0.02] * 2))
    rows = rng.uniform(-1, 1, (50, 3))
    rows[rng.random(rows.shape) < 0.4] = np.nan
    alone = np.concatenate([own.log_density(xp, row[None]) for row in rows])
    assert np.allclose(own.log_density(xp, rows), alone, atol=1e-12)


def test_the_plan_says_beforehand_where_the_start_fails_and_what_would_do():
    given = {"delta": 1e-6, "bounds": (-1, 1)}
    poor = DPGaussianMixture(5, epsilon=0.3, **given).plan(1000, 10)
    assert not poor.feasible
    assert "rows or epsilon=" in poor.advice
    good = DPGaussianMixture(5, epsilon=1.0, **given).plan(20_000, 10)
    assert good.feasible
    assert good.prediction.median < 0.03 < poor.prediction.median
    told = [DPGaussianMixture(5, epsilon=e, **given).plan(4000, 10).prediction.median for e in (0.25, 0.5, 1, 2, 4)]
    assert told == sorted(told, reverse=True)


@SIMULATED
@pytest.mark.filterwarnings("ignore:The model describes")
def test_columns_that_say_nothing_together_are_no_groups():
    X, _ = three_groups(6000, weights=(0.9, 0.06, 0.04))
    rng = np.random.default_rng(2)
    shuffled = np.column_stack([rng.permutation(column) for column in X.T])
    assert DPGaussianMixture("auto", **GIVEN, bounds=BOUNDS, random_state=3).fit(shuffled).n_components_ == 1
    model = DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=3).fit(shuffled)
    assert not model.fit_check_.better
    assert "independent columns" in model.fit_check_.verdict


def test_the_product_of_margins_is_the_density_of_shuffled_columns():
    own = Gaussians(np.array([0.3, 0.7]), np.array([[0.2, -0.3], [-0.4, 0.1]]), np.array([[0.02, 0.05], [0.03, 0.01]]))
    rows = np.array([[0.1, 0.2], [np.nan, -0.5], [np.nan, np.nan]])
    each = np.exp(-0.5 * (rows[:, None] - own.means) ** 2 / own.covariances) / np.sqrt(2 * np.pi * own.covariances)
    margins = np.log(np.einsum("k,nkj->nj", own.weights, each))
    assert np.allclose(own.product_of_margins(xp, rows), np.nansum(margins, axis=1))


@SIMULATED
@pytest.mark.parametrize("seed", [5, 17])
def test_centres_of_a_regular_figure_are_found_though_second_moments_are_round(seed):
    rng = np.random.default_rng(seed)
    turn = 2 * np.pi * np.arange(3) / 3
    centres = 2.31 * np.column_stack([np.cos(turn), np.sin(turn)])
    label = rng.integers(3, size=2000)
    X = centres[label] + rng.standard_normal((2000, 2))
    model = DPGaussianMixture(3, **GIVEN, bounds=(-12, 12), random_state=seed, check=False).fit(X)
    assert adjusted_rand_score(label, model.predict(X)) > 0.8


@SIMULATED
@pytest.mark.filterwarnings("ignore:The model describes", "ignore:expect little more")
def test_groups_are_told_from_1_the_largest_first_within_what_they_can_be():
    X, _ = three_groups(400)
    model = DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=7).fit(X)
    assert (np.diff(model.weights_) <= 0).all()
    table = model.summary(level=0.999)
    assert list(table.index[:4]) == ["group 1: share", "group 2: share", "group 3: share", "group 1: mean of x0"]
    assert table.index[-1] == "group 3: variance of x2"
    bare = table.estimate - 3.29 * table.standard_error
    assert (bare.iloc[12:] < 0).any()  # so the next lines could fail
    assert (table.lower.drop(table.index[3:12]) >= 0).all()
    assert (table.upper.iloc[:3] <= 1).all()
    assert model._profile().groups == ("group 1", "group 2", "group 3")


@SIMULATED
def test_full_covariances_have_limits_on_their_diagonals_only():
    X, _ = three_groups(3000)
    for kind, count in (("full", 18), ("tied", 6)):
        model = DPGaussianMixture(3, kind, **GIVEN, bounds=BOUNDS, random_state=7, check=False).fit(X)
        theta, schema = model.theta_, model.schema_
        told = [name.rpartition(": ")[2].startswith("variance") for name in names(theta, schema)[12:]]
        assert [kind == "positive" for kind in kinds(theta, schema)[12:]] == told
        assert len(told) == count


@SIMULATED
@pytest.mark.filterwarnings("ignore:The model describes")
def test_doubts_of_equal_values_are_told_and_groups_are_not():
    X, _ = three_groups(4000)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "some groups are heaps")
        DPGaussianMixture(3, **GIVEN, bounds=BOUNDS, random_state=1).fit(X)
    years = np.column_stack([np.random.default_rng(0).choice([12.0, 16.0], size=6000), np.repeat(X[:3000, 0], 2)])
    years[:, 1] += 4 * (years[:, 0] > 14)
    with pytest.warns(UserWarning, match="Some components collapsed onto repeated values of x0"):
        DPGaussianMixture(2, **GIVEN, bounds=([0, -8], [25, 14]), random_state=1).fit(years)
