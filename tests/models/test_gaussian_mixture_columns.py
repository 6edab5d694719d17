"""The choice of columns: its sensitivity and price, the columns that are chosen, and their names in outputs."""

import itertools
import math
import warnings

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pandas as pd
import pytest
from cheaper import small_surrogate
from click.testing import CliRunner
from sklearn.metrics import adjusted_rand_score

from dpem import Budget, DPGaussianMixture, load_model, save_model
from dpem.audit.neighbours import Table
from dpem.audit.replay import replay
from dpem.cli import cli
from dpem.models.gaussian_mixture.sparsity import PairedSides
from dpem.privacy import Account, Curator, SeededNoise
from dpem.query import Chunk
from dpem.tables import ArraySource
from dpem.tables.schema import Schema

PRIVACY = {"epsilon": 1.0, "delta": 1e-6}
NAMES = [f"c{j}" for j in range(4)]
SCHEMA = Schema.of(NAMES, dict.fromkeys(NAMES, (-1.0, 1.0)), {})


def paired_sides():
    return PairedSides(SCHEMA, np.array([0.1, -0.2, 0.0, 0.3]))


def wide(n=6000, d=40, seed=0):
    """Two components that differ in columns 3, 17 and 30; the other columns are normal or exponential."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.4).astype(int)
    X = rng.standard_normal((n, d))
    X[:, 20:28] = rng.exponential(size=(n, 8))
    X[:, [3, 17, 30]] += 2.5 * label[:, None] * [1, -1, 1]
    return X, label


def scores(rows):
    own = paired_sides()
    return own.folded(own.sum(Chunk(rows, None)) / len(rows))


def test_a_row_moves_a_score_by_up_to_the_sensitivity():
    n, rng = 7, np.random.default_rng(0)
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    odd = np.array([[np.nan] * 4, [np.inf, -np.inf, 1e308, -1e308], [5e-324, np.nan, 0.1, 0.3]])
    most = 0.0
    for others in (np.ones((n - 1, 4)), -np.ones((n - 1, 4)), *(rng.choice(corners, n - 1) for _ in range(20))):
        found = np.array([scores(np.vstack([others, row])) for row in (*corners, *odd)])
        most = max(most, float(np.max(found.max(axis=0) - found.min(axis=0))))
    bound = paired_sides().bound.linf / n
    assert most <= bound
    assert most > 0.8 * bound  # (n − 1)/n of it, with all other rows in one corner


def test_the_curator_prices_the_folded_score():
    rows = np.vstack([np.ones((49, 4)), -np.ones((1, 4))])
    account = Account(math.inf, 0.5)
    curator = Curator(ArraySource(rows), account, SeededNoise(0))
    curator.select(paired_sides(), 2, 0.5)
    assert account.releases[0].sensitivity == pytest.approx(1 / 50, rel=1e-9)


def test_array_libraries_agree_and_large_chunks_are_summed_in_blocks():
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (300, 4))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    here = paired_sides().contributions(xp, rows, None)
    strict = paired_sides().contributions(array_api_strict, array_api_strict.asarray(rows), None)
    assert np.array_equal(here, np.asarray(strict))
    long = np.tile(rows, (1000, 1))
    assert np.array_equal(paired_sides().sum(Chunk(long, None)), 1000 * here)


def test_the_columns_that_separate_components_are_chosen_and_named(tmp_path):
    X, label = wide()
    frame = pd.DataFrame(X, columns=[f"item {j}" for j in range(X.shape[1])])
    model = DPGaussianMixture(2, sparsity=3, **PRIVACY, bounds=(-9, 9), random_state=1).fit(frame)
    assert model.support_.tolist() == [3, 17, 30]
    assert model.support_names_ == ("item 3", "item 17", "item 30")
    assert model.means_.shape == (2, 3)
    assert adjusted_rand_score(label, model.predict(frame)) > 0.85
    assert model.fit_check_.better
    shown = list(model.summary().index)
    assert any("item 17" in name for name in shown)
    assert not any("item 4" in name for name in shown)
    path = tmp_path / "model.json"
    save_model(model, path)
    again = load_model(path)
    assert again.support_names_ == model.support_names_
    assert np.allclose(again.predict_proba(frame), model.predict_proba(frame))
    assert np.allclose(again.conf_int(), model.conf_int())


def test_the_price_of_the_choice_is_in_the_plan():
    X, _ = wide(3000)
    model = DPGaussianMixture(2, sparsity=3, **PRIVACY, bounds=(-9, 9), random_state=1)
    plan = model.plan(len(X), X.shape[1])
    assert "choice of 3 columns that go together" in [step.describe() for step in plan.steps]
    assert not plan.price.gaussian
    model.fit(X)
    assert math.fsum(release.price.rho for release in model.releases_) == pytest.approx(plan.price.rho)
    poor = DPGaussianMixture(2, sparsity=3, epsilon=0.1, delta=1e-6, bounds=(-9, 9)).plan(500, 200)
    assert not poor.feasible
    assert "columns that carry components will be missed" in poor.advice


def test_without_noise_the_right_columns_are_chosen_or_all_of_them():
    X, _ = wide(3000)
    exact = DPGaussianMixture(2, sparsity=3, epsilon=math.inf, delta=1e-6, bounds=(-9, 9)).fit(X)
    assert exact.support_.tolist() == [3, 17, 30]
    few = X[:, [3, 17, 30]]
    whole = DPGaussianMixture(2, epsilon=math.inf, delta=1e-6, bounds=(-9, 9)).fit(few)
    same = DPGaussianMixture(2, sparsity=3, epsilon=math.inf, delta=1e-6, bounds=(-9, 9)).fit(few)
    assert np.array_equal(whole.means_, same.means_)
    assert whole.support_.tolist() == [0, 1, 2]
    assert exact.score(X) == pytest.approx(whole.score(few), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sparsity": 1}, "sparsity must be at least 2, got 1"),
        ({"sparsity": 0}, "sparsity must be"),
        ({"sparsity": "few"}, "sparsity must be"),
    ],
)
def test_refusals_spend_nothing(change, words):
    budget = Budget(2.0, 1e-5)
    with pytest.raises(ValueError, match=words):
        DPGaussianMixture(2, **PRIVACY, **change, bounds=(-9, 9), budget=budget).fit(np.zeros((300, 5)))
    assert budget.n_charges == 0
    with pytest.raises(ValueError, match="at most 2,000 columns to choose from, got 2,001"):
        DPGaussianMixture(2, sparsity=3, **PRIVACY, bounds=(-9, 9)).plan(5000, 2001)


@pytest.mark.filterwarnings("ignore:expect little more")
@pytest.mark.parametrize("rows", [np.full((200, 6), np.nan), np.ones((200, 6)), np.full((200, 6), 1e308)])
def test_extreme_tables_are_fitted(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = DPGaussianMixture(2, sparsity=2, **PRIVACY, bounds=(-9, 9), random_state=0).fit(rows)
    assert np.isfinite(model.means_).all()
    assert len(model.support_) == 2


@pytest.mark.filterwarnings("ignore")
def test_replays_on_neighbours_stay_within_the_sensitivities(monkeypatch):
    small_surrogate(monkeypatch)
    X = np.random.default_rng(0).standard_normal((80, 6))
    X[::9, 1] = np.nan
    estimator = DPGaussianMixture(2, sparsity=3, epsilon=4.0, delta=1e-4, bounds=(-9, 9))
    verdict = replay(estimator, Table("as drawn", X, None), missing=True, from_neighbours=False)
    assert verdict.faults == []
    assert verdict.used["sides of all pairs of 6 columns"] > 0.3


def test_the_command_plans_a_choice_of_columns():
    given = ["--n", "10000", "--d", "200", "--epsilon", "1", "--delta", "1e-6"]
    result = CliRunner().invoke(cli, ["plan", "gaussian-mixture", *given, "--sparsity", "5"])
    assert result.exit_code == 0, result.output
    assert "choice of 5 columns that go together" in result.output
