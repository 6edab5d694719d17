"""Latent classes: EM without noise, classes that are found, every kind of rows, plans and intervals."""

import math
import warnings
from dataclasses import replace
from functools import partial

import array_api_strict
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score
from test_latent_class_queries import LEVELS, K, classes, codes, family, plain_em

from dpem import Budget, load_model, read_table, save_model
from dpem.audit.replay import Table, replay
from dpem.fitting.diagnostics import FitWarning
from dpem.models.latent_class import DPLatentClass, planning, steps
from dpem.models.latent_class.family import TUNING

pytestmark = pytest.mark.filterwarnings("ignore:The classes are not stable")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Post-processing that is less thorough than in a fit."""
    monkeypatch.setattr(steps, "TUNING", replace(TUNING, restarts=4))


def arguments(levels=LEVELS, **more):
    known = {f"x{j}": list(range(count)) for j, count in enumerate(levels)}
    return {"n_classes": K, "epsilon": 1.0, "delta": 1e-6, "levels": known, **more}


# --- fits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [1.0, 0.85])
def test_without_noise_it_is_an_optimum_of_em_and_the_best_of_many(observed):
    X = codes(classes(8), 4000, 9, observed=observed)
    model = DPLatentClass(**arguments(epsilon=math.inf)).fit(X)
    weights, p = plain_em(X, model.theta_.classes)
    assert np.allclose(model.weights_, weights, atol=3e-5)
    assert np.allclose(model.theta_.probabilities, p, atol=3e-5)
    assert not model.guarantee_.private
    assert (model.theta_.weights_errors[1] == 0).all()
    hot = np.hstack([X[:, [j]] == np.arange(L) for j, L in enumerate(LEVELS)]).astype(float)
    for seed in range(5):
        start = family(classes(0)).random_start(X, X, np.random.default_rng(seed))
        weights, p = plain_em(X, start, rounds=500)
        other = np.logaddexp.reduce(hot @ np.log(np.maximum(p, 1e-12)).T + np.log(weights), axis=1).mean()
        assert model.score(X) > other - 1e-6


def test_without_noise_it_is_as_likely_as_stepmix():
    stepmix = pytest.importorskip("stepmix.stepmix")
    X = codes(classes(10, (2,) * 6), 1500, 11, (2,) * 6, observed=0.9)
    model = DPLatentClass(**arguments((2,) * 6, epsilon=math.inf)).fit(X)
    options = {"n_init": 5, "max_iter": 5000, "abs_tol": 1e-13, "rel_tol": 1e-13, "progress_bar": 0}
    other = stepmix.StepMix(n_components=K, measurement="binary_nan", random_state=0, **options).fit(X)
    assert model.score(X) == pytest.approx(other.score(X), abs=1e-6)


def test_without_noise_too_many_cells_are_read_row_by_row(monkeypatch):
    X = codes(classes(8), 800, 9)
    counted = DPLatentClass(**arguments(epsilon=math.inf)).fit(X)
    monkeypatch.setattr(steps, "MOST_COUNTED", 0)
    read = DPLatentClass(**arguments(epsilon=math.inf)).fit(X)
    assert read.score(X) == pytest.approx(counted.score(X), abs=1e-6)


def yes_no(seed, n, items, K):
    rng = np.random.default_rng(seed)
    p = rng.choice([0.15, 0.85], size=(K, items))
    z = rng.choice(K, size=n, p=rng.dirichlet(np.full(K, 8.0)))
    return (rng.random((n, items)) < p[z]).astype(float), z


@pytest.mark.parametrize("most_cells", [4096, 100])
def test_the_classes_are_found(monkeypatch, most_cells):
    """On all cells, and on drawn rows. The largest distance of a class is .024 in the mean, on drawn rows .029, with
    standard deviations of .008 and .02 from fit to fit; a class that is not found is .28 away.
    """
    monkeypatch.setattr(steps, "TUNING", replace(TUNING, most_cells=most_cells, restarts=4))
    X, z = yes_no(3, 20_000, 10, 4)
    free = DPLatentClass(**arguments((2,) * 10, n_classes=4, epsilon=math.inf)).fit(X)
    gaps = []
    for seed in range(4):
        model = DPLatentClass(**arguments((2,) * 10, n_classes=4, epsilon=0.5, random_state=seed)).fit(X)
        assert adjusted_rand_score(z, model.predict(X)) > adjusted_rand_score(z, free.predict(X)) - 0.03
        gaps.append(
            np.abs(model.theta_.probabilities[:, None] - free.theta_.probabilities).mean(axis=2).min(axis=1).max()
        )
        assert model.fit_check_.better
        assert model.score(X) > free.score(X) - 0.02
    assert np.mean(gaps) < (0.04 if most_cells == 4096 else 0.065)
    assert max(gaps) < 0.12


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_empty_rows_leave_the_shares_unchanged(epsilon):
    X, _ = yes_no(3, 8000, 8, 2)
    empty = np.vstack([X, np.full((4000, 8), np.nan)])
    own = arguments((2,) * 8, n_classes=2, epsilon=epsilon, random_state=0)
    one, other = DPLatentClass(**own).fit(X), DPLatentClass(**own).fit(empty)
    assert np.abs(one.weights_ - other.weights_).max() < (0.03 if epsilon == 1.0 else 1e-4)
    assert np.abs(one.theta_.probabilities - other.theta_.probabilities).max() < (0.03 if epsilon == 1.0 else 1e-4)


def test_every_kind_of_rows_gives_the_same_fit(monkeypatch, tmp_path):
    import dask.array as da
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setattr(planning, "Converge", partial(steps.Converge, starts=2))
    X = codes(classes(10), 3000, 11, observed=0.9)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(5)}), tmp_path / "rows.parquet", row_group_size=700)
    held = {
        "array": X,
        "frame": pd.DataFrame(X, columns=[f"x{j}" for j in range(5)]),
        "CSR": sparse.csr_matrix(X),
        "array API": array_api_strict.asarray(X),
        "Dask": da.from_array(X, chunks=(800, 5)),
        "Parquet": read_table(tmp_path / "rows.parquet"),
    }
    for epsilon in (1.0, math.inf):
        first = None
        for kind, rows in held.items():
            model = DPLatentClass(**arguments(random_state=1, epsilon=epsilon)).fit(rows)
            first = model if first is None else first
            assert np.allclose(model.theta_.probabilities, first.theta_.probabilities, atol=1e-6), kind
            if kind != "Dask":
                assert np.allclose(model.predict_proba(rows), first.predict_proba(X), atol=1e-6), kind


def test_texts_missing_values_and_undeclared_answers():
    X = codes(classes(12), 3000, 13)
    words = np.array(["no", "yes", "perhaps", "never"])
    frame = pd.DataFrame({f"q{j}": words[X[:, j].astype(int)] for j in range(5)})
    frame.loc[::10, "q0"] = None
    frame.loc[::7, "q1"] = "what?"
    levels = {f"q{j}": list(words[:L]) for j, L in enumerate(LEVELS)}
    model = DPLatentClass(K, epsilon=1.0, delta=1e-6, levels=levels, random_state=0).fit(frame)
    numbers = X.copy()
    numbers[::10, 0], numbers[::7, 1] = np.nan, np.nan
    same = DPLatentClass(**arguments(random_state=0)).fit(numbers)
    assert np.array_equal(model.theta_.probabilities, same.theta_.probabilities)
    assert list(model.probabilities_) == [f"q{j}" for j in range(5)]
    assert model.schema_.names[:3] == ("q0=no", "q0=yes", "q1=no")
    for item, count in zip(model.probabilities_.values(), LEVELS, strict=True):
        assert item.shape == (K, count)
        assert np.allclose(item.sum(axis=1), 1)
        assert (item >= 0).all()
    rows, group = model.sample(50, random_state=0)
    assert set(rows[:, 0]) <= {"no", "yes"}
    assert rows.shape == (50, 5)
    assert group.shape == (50,)
    assert same.sample(50, random_state=0)[0].dtype == float


@pytest.mark.parametrize("rows", ["empty", "duplicates", "absurd", "two"])
def test_every_table_of_numbers_gives_finite_results(rows):
    X = {
        "empty": np.full((500, 5), np.nan),
        "duplicates": np.ones((500, 5)),
        "absurd": np.resize([1e308, -1e308, 5e-324, 0.5, 3.0, 0.0, 1.0], (500, 5)),
        "two": np.array([[0.0, 1, 0, 1, 0], [1, 1, 1, 1, 1]]),
    }[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FitWarning)
        warnings.filterwarnings("ignore", "delta=|random_state|expect little|2 classes may not be found")
        for epsilon in (1.0, math.inf):
            model = DPLatentClass(**arguments(n_classes=2, epsilon=epsilon, random_state=0)).fit(X)
            assert np.isfinite(model.theta_.probabilities).all()
            assert np.isfinite(model.predict_proba(X)).all()
            assert np.isfinite(model.conf_int()).all()


def test_independent_answers_are_no_classes():
    rng = np.random.default_rng(14)
    X = (rng.random((5000, 8)) < rng.uniform(0.2, 0.8, 8)).astype(float)
    with pytest.warns(FitWarning, match="no improvement over independent answers with its own overall"):
        model = DPLatentClass(**arguments((2,) * 8, random_state=0)).fit(X)
    assert not model.fit_check_.better
    assert "fit-check" in [own.code for own in model.diagnostics_]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_the_number_of_classes_is_found(monkeypatch, number, epsilon):
    monkeypatch.setattr(planning, "MOST", 4)
    monkeypatch.setattr(planning, "Converge", partial(steps.Converge, starts=6))
    theta, levels = classes(31, (2,) * 8, number), (2,) * 8
    own = arguments(levels, n_classes="auto", random_state=0, epsilon=epsilon)
    model = DPLatentClass(**own).fit(codes(theta, 9000, 32, levels))
    assert model.n_classes_ == number == len(model.weights_) == 1 + int(np.argmin(model.n_classes_scores_))
    assert np.abs(np.sort(model.weights_) - np.sort(theta.weights)).max() < 0.1
    assert model.fit_check_.better


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_one_class_is_found_where_answers_are_independent(epsilon):
    rng = np.random.default_rng(33)
    X = (rng.random((5000, 8)) < rng.uniform(0.2, 0.8, 8)).astype(float)
    model = DPLatentClass(**arguments((2,) * 8, n_classes="auto", random_state=0, epsilon=epsilon)).fit(X)
    assert model.n_classes_ == 1
    assert model.fit_check_.lead < 4 * model.fit_check_.standard_error
    assert np.allclose(model.weights_, 1)
    assert set(model.predict(X)) == {0}
    assert np.isfinite(model.conf_int()).all()
    assert np.mean(np.diff(model.conf_int()[1:], axis=1)) < 0.2  # a share of answers is known without classes


def test_estimating_the_number_of_classes_costs_nothing_more_and_is_saved(tmp_path):
    fixed, found = DPLatentClass(**arguments()), DPLatentClass(**arguments(n_classes="auto", random_state=0))
    here, there = (model.plan(9000) for model in (fixed, found))
    assert [step.rho for step in here.steps] == [step.rho for step in there.steps]
    assert "their number will be estimated" in str(there)
    found.fit(codes(classes(31), 9000, 32))
    save_model(found, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.n_classes_ == found.n_classes_
    assert np.array_equal(again.n_classes_scores_, found.n_classes_scores_)
    assert len(found.releases_) == len(here.steps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_classes": "many"}, "n_classes must be a positive whole number"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"n_classes": 2.5}, "n_classes must be a positive whole number"),
        ({"n_classes": 11}, "n_classes must be at most 10 with so few answers, got 11"),
        ({"levels": None}, "levels must name every column, but lack columns 'x0', 'x1'"),
        ({"levels": {"x0": [0, 1], "x1": [0]}}, "levels of 'x1' must be a list of at least two different levels"),
    ],
)
def test_refusals_spend_nothing(change, words):
    X, budget = codes(classes(15), 900, 16), Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match=words):
        DPLatentClass(**{**arguments(budget=budget), **change}).fit(X)
    assert budget.n_charges == 0


def test_a_loaded_model_is_the_saved_one(tmp_path):
    X = codes(classes(21), 6000, 22)
    model = DPLatentClass(**arguments(random_state=0)).fit(X)
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.conf_int(), model.conf_int())
    assert again.probabilities_.keys() == model.probabilities_.keys()
    assert again.diagnostics_ == model.diagnostics_


def test_more_classes_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"n_classes must be at most the number of rows \(2\), got 3"):
        DPLatentClass(**arguments(delta=0.01)).fit(np.ones((2, 5)))


def test_one_item_is_refused():
    with pytest.raises(ValueError, match="at least 3 columns"):
        DPLatentClass(2, epsilon=1.0, delta=1e-6, levels={"x0": [0, 1]}).fit(np.ones((50, 1)))


# --- stability -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The model describes the rows no better")
def test_overlapping_classes_are_reported_as_unstable_and_clear_ones_are_not():
    rng = np.random.default_rng(5)
    far = np.array([[0.9] * 10, [0.1] * 10, [0.9] * 5 + [0.1] * 5])
    X = (rng.random((20_000, 10)) < far[rng.integers(3, size=20_000)]).astype(float)
    clear = DPLatentClass(**arguments((2,) * 10, random_state=0)).fit(X)
    assert clear.diagnostics_ == ()
    p = 0.5 + 0.22 * rng.choice([-1, 1], size=(3, 6))
    faint = (rng.random((2000, 6)) < p[rng.integers(3, size=2000)]).astype(float)
    model = DPLatentClass(**arguments((2,) * 6, random_state=0)).fit(faint)
    assert {own.code for own in model.diagnostics_} & {"unstable-classes", "fit-check"}


# --- plans ---------------------------------------------------------------------------------------------------------


def test_predicted_errors_fall_with_rows_and_epsilon():
    made = {
        (n, e): DPLatentClass(**arguments((2,) * 10, epsilon=e)).plan(n) for n in (3000, 30_000) for e in (0.5, 1.0)
    }
    seen = {key: plan.prediction.median for key, plan in made.items()}
    assert seen[3000, 0.5] > seen[3000, 1.0] > seen[30_000, 1.0]
    assert seen[3000, 0.5] > seen[30_000, 0.5] >= seen[30_000, 1.0]
    assert "error that privacy adds to the probabilities" in str(made[3000, 1.0])
    assert "% of the rows will not be found" in str(made[3000, 1.0])
    assert made[30_000, 1.0].feasible
    assert not made[30_000, 1.0].remarks


def test_a_plan_warns_if_classes_will_not_be_found():
    plan = DPLatentClass(**arguments((2,) * 10, n_classes=6, epsilon=0.2)).plan(1000)
    assert not plan.feasible
    assert plan.prediction.failure > 0.3
    assert "rows" in plan.advice
    risky = DPLatentClass(**arguments((2,) * 10, epsilon=0.5)).plan(1000)
    assert risky.feasible
    assert "3 classes may not be found" in risky.remarks[0]


@pytest.mark.parametrize(("levels", "K"), [((2, 2), 2), ((2, 2, 2), 3), ((3, 3), 2)])
def test_more_classes_than_answers_identify_are_refused(levels, K):
    with pytest.raises(ValueError, match=r"at least 3 columns|n_classes must be at most 2 with so few answers"):
        DPLatentClass(**arguments(levels, n_classes=K)).plan(1000)


# --- intervals -----------------------------------------------------------------------------------------------------


def test_the_summary_names_shares_and_probabilities():
    model = DPLatentClass(**arguments(random_state=0)).fit(codes(classes(17), 4000, 18))
    table = model.summary()
    assert list(table.index[:4]) == ["class 1: share", "class 2: share", "class 3: share", "class 1: x0=0"]
    assert len(table) == K * (1 + sum(LEVELS))
    assert (table.lower >= 0).all()
    assert (table.upper <= 1).all()
    assert (table.privacy > 0).all()
    assert (table.sampling > 0).all()


# --- privacy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, "auto"])
def test_a_fit_replayed_on_neighbours_differs_only_as_promised(monkeypatch, number):
    monkeypatch.setattr(steps, "TUNING", replace(TUNING, restarts=1))
    X = codes(classes(19, levels=(2, 3, 2)), 300, 20, (2, 3, 2), observed=0.9).astype(np.float32)
    estimator = DPLatentClass(**arguments((2, 3, 2), n_classes=number, epsilon=1.0, delta=1e-4))
    verdict = replay(estimator, Table("as drawn", X, None), missing=True, from_neighbours=False)
    assert verdict.faults == []
    assert max(verdict.used.values()) > 0.45, verdict.used


def test_without_privacy_classes_are_never_reported_as_unstable():
    X = np.random.default_rng(0).integers(2, size=(500, 6))
    assert DPLatentClass(**arguments((2,) * 6, n_classes=2, epsilon=math.inf)).fit(X)._diagnostics() == []
