"""Latent classes: what is asked stays within its bound, what is found is true, every kind of rows gives the same."""

import itertools
import math
import warnings

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from dpem import Budget, load_model, read_table, save_model
from dpem.audit.replay import Table, replay
from dpem.fitting.diagnostics import FitWarning
from dpem.models.latent_class import estimator as subject
from dpem.models.latent_class import number_of_classes
from dpem.models.latent_class import queries as answers
from dpem.models.latent_class import steps as fitting
from dpem.models.latent_class.estimator import DPLatentClass
from dpem.models.latent_class.queries import Items
from dpem.queries.schema import Schema
from dpem.query import Chunk

pytestmark = pytest.mark.filterwarnings("ignore:Classes are less clear")

LEVELS = (2, 3, 2, 4, 2)
K = 3


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """What follows an answer is post-processing: here it is done less thoroughly than in a fit."""
    monkeypatch.setattr(fitting, "GUESSES", 40)
    monkeypatch.setattr(fitting, "POLISHED", 3)
    monkeypatch.setattr(subject, "DRAWN", 4096)


def schema(levels=LEVELS):
    names = [f"x{j}" for j in range(len(levels))]
    own = {name: tuple(map(float, range(count))) for name, count in zip(names, levels, strict=True)}
    return Schema.of(names, {}, own, every_level=True)


def classes(seed=0, levels=LEVELS, K=K, observed=1.0):
    """Well separated classes: parameters of the model."""
    rng, items = np.random.default_rng(seed), Items(levels)
    p = items.within(np.hstack([rng.dirichlet(np.full(L, 0.4), size=K) for L in levels]), 0.03)
    weights = rng.dirichlet(np.full(K, 8.0))
    none = np.zeros((2, K)), np.zeros((2, *p.shape))
    return subject.Parameters(weights, p, np.full(len(levels), observed), weights @ p, *none)


def codes(theta, n, seed, levels=LEVELS):
    """Rows as numbers 0, 1, … with NaN for holes."""
    items = Items(levels)
    x, _ = subject.LatentClass(schema(levels), len(theta.weights), items).draw(theta, n, np.random.default_rng(seed))
    first = items.first
    hot = [x[:, a:b] for a, b in itertools.pairwise(first)]
    return np.column_stack([np.where(np.isnan(h[:, 0]), np.nan, np.argmax(h, axis=1)) for h in hot])


def given(levels=LEVELS, **more):
    known = {f"x{j}": list(range(count)) for j, count in enumerate(levels)}
    return {"n_classes": K, "epsilon": 1.0, "delta": 1e-6, "levels": known, **more}


def questions():
    items, theta = Items(LEVELS), classes(1)
    phases = np.random.default_rng(0).normal(size=(items.first[-1], 7)) * 3
    return [
        answers.PairMoments(schema(), items),
        answers.Waves(schema(), items, phases),
        answers.ClassSums(schema(), items, theta.weights, theta.probabilities),
    ]


# --- what is asked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", questions(), ids=lambda question: type(question).__name__)
def test_no_pair_of_rows_moves_a_sum_beyond_its_bound(question):
    """Every row there is, holes and undeclared levels included."""
    entries = [[*range(L), np.nan] for L in LEVELS]
    rows = np.array(list(itertools.product(*entries)))
    absurd = np.array([[1e308] * 5, [-1e308] * 5, [np.inf] * 5, [-np.inf] * 5, [0.5] * 5, [5e-324] * 5])
    rows = np.vstack([rows, absurd])
    sums = np.array([question.sum(Chunk(row[None], None)) for row in rows])
    assert np.isfinite(sums).all()
    squares = np.sum(sums**2, axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares - 2 * sums @ sums.T, 0))
    assert gaps.max() <= question.bound.l2 * (1 + 1e-9)
    assert np.sqrt(squares.max()) <= question.bound.size_l2 * (1 + 1e-9)
    assert np.abs(sums).max() <= question.bound.size_linf * (1 + 1e-9)
    assert (sums.max(axis=0) - sums.min(axis=0)).max() <= question.bound.linf * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["PairMoments", "Waves", "ClassSums"])
def test_the_bounds_are_reached(kind):
    """Two classes that split the answers, yes and no for ever opposite, angles half a turn apart but for a little."""
    levels = (2, 2, 2, 2)
    items = Items(levels)
    hot = np.tile([0.999, 0.001], 4)
    question = {
        "PairMoments": answers.PairMoments(schema(levels), items),
        "Waves": answers.Waves(schema(levels), items, np.tile([0.0, math.acos(-0.25) / 4], 4)[:, None]),
        "ClassSums": answers.ClassSums(schema(levels), items, np.full(2, 0.5), np.vstack([hot, hot[::-1]])),
    }[kind]
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    sums = np.array([question.sum(Chunk(row[None], None)) for row in rows])
    gap = max(np.linalg.norm(a - b) for a in sums for b in sums)
    assert gap >= (0.85 if kind == "PairMoments" else 0.999) * question.bound.l2


def furthest(question, rows):
    sums = np.array([question.sum(Chunk(row[None], None)) for row in rows])
    return max(np.linalg.norm(a - b) for a in sums for b in sums)


def test_planted_bugs_are_seen_by_rows_of_answers(monkeypatch):
    """Levels counted twice, chances that do not add up to 1, bounds that forget a part: each exceeds what is stated."""
    J, twin = 4, (0.0, 0.0, 1.0)
    names = [f"x{j}" for j in range(J)]
    known = Schema.of(names, {}, dict.fromkeys(names, twin), every_level=True)
    items, rows = Items((3,) * J), np.array(list(itertools.product([0.0, 1.0], repeat=J)))
    even = np.full((2, 3 * J), 1 / 3)
    by_class = answers.ClassSums(known, items, np.array([0.999, 0.001]), even)
    assert furthest(by_class, rows) <= by_class.bound.l2

    def counted_twice(xp, x, items):
        return xp.astype(x > 0, xp.float64)

    def apart(xp, h, weights, probabilities):
        return xp.ones((h.shape[0], len(weights)))

    for name, bug in (("answers", counted_twice), ("chances", apart)):
        with monkeypatch.context() as planted:
            planted.setattr(answers, name, bug)
            assert furthest(by_class, rows) > by_class.bound.l2, name
    alone = Items((2,) * J)
    for question, forgotten in (
        (answers.PairMoments(schema((2,) * J), alone), math.sqrt(2 * J)),  # the products
        (answers.ClassSums(schema((2,) * J), alone, np.full(2, 0.5), np.full((2, 2 * J), 0.5)), 1.0),  # the answers
    ):
        assert forgotten < furthest(question, rows) <= question.bound.l2


def test_levels_that_are_one_number_count_once():
    known = Schema.of(["a"], {}, {"a": (0.0, 0.0, 1.0)}, every_level=True)
    h = answers.answers(xp, known.coordinates(xp, np.array([[0.0], [1.0], [2.0]])), Items((3,)))
    assert h.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_sums_by_class_against_plain_numpy():
    theta = classes(2, observed=0.8)
    X = codes(theta, 400, 3)
    question = answers.ClassSums(schema(), Items(LEVELS), theta.weights, theta.probabilities)
    total = np.zeros((K, 1 + sum(LEVELS)))
    first = Items(LEVELS).first
    for row in X:
        places = [first[j] + int(v) for j, v in enumerate(row) if not np.isnan(v)]
        r = theta.weights * np.prod(theta.probabilities[:, places], axis=1)
        r /= r.sum()
        total[:, 0] += r
        for place in places:
            total[:, 1 + place] += r
    found = question.sum(Chunk(X, None))
    assert np.allclose(found[:K], total[:, 0])
    assert np.allclose(found[K:].reshape(K, -1), total[:, 1:])


# --- the numbers behind the start and the steps ----------------------------------------------------------------------


def test_effects_are_corners_of_a_simplex_and_lead_back():
    items = Items(LEVELS)
    assert np.allclose(np.sum(items.effects**2, axis=1), 1)
    assert np.allclose(items.of_level.T @ items.effects, 0)
    p = classes(4).probabilities
    assert np.allclose(items.probabilities(p @ items.effects), p)


def misfit():
    items, theta = Items(LEVELS), classes(5, observed=0.9)
    r, rng = items.effects.shape[1], np.random.default_rng(6)
    pairs = len(items.pairs[0])
    moments = fitting.Moments(
        theta.observed, rng.normal(size=r) / 5, np.full(r, 0.1), rng.normal(size=pairs) / 5, np.full(pairs, 0.1)
    )
    phases = rng.normal(size=(items.first[-1], 6))
    sketch = fitting.Sketch(phases, rng.normal(size=12) + 1j * rng.normal(size=12), 0.1)
    x = np.concatenate([theta.weights, (theta.probabilities @ items.effects).ravel()])
    return fitting.Misfit(items, moments, sketch, near=x + 0.01), x


def test_the_derivative_of_the_misfit():
    function, x = misfit()
    x = x + 0.3 * np.sin(np.arange(len(x)))  # some shares and probabilities out of their range
    steps = 1e-6 * np.eye(len(x))
    numeric = np.column_stack([(function(x + h) - function(x - h)) / 2e-6 for h in steps])
    assert np.allclose(function.derivative(x), numeric, atol=1e-4)


def test_what_the_sketch_of_classes_should_be():
    """The product over items, against drawn rows."""
    function, _ = misfit()
    theta = classes(5, observed=0.9)
    model = subject.LatentClass(schema(), K, function.items)
    h = answers.answers(xp, model.draw(theta, 50_000, np.random.default_rng(7))[0], function.items)
    seen = np.exp(1j * h @ np.hstack([function.sketch.phases, 2 * function.sketch.phases])).mean(axis=0)
    told = theta.weights @ np.prod(function._factors(theta.probabilities), axis=1)
    assert np.abs(seen - told).max() < 0.02
    assert np.abs(told).max() > 0.1


# --- fits ----------------------------------------------------------------------------------------------------------


def plain_em(X, weights, p, levels=LEVELS, rounds=3000):
    """Textbook EM, items with holes left out of a row."""
    items = Items(levels)
    hot = np.hstack([(X[:, [j]] == np.arange(L)) for j, L in enumerate(levels)]).astype(float)
    patterns, counts = np.unique(hot, axis=0, return_counts=True)
    for _ in range(rounds):
        joint = patterns @ np.log(p).T + np.log(weights)
        r = np.exp(joint - joint.max(axis=1, keepdims=True))
        r *= (counts / r.sum(axis=1))[:, None]
        weights = r.sum(axis=0) / len(X)
        sums = r.T @ patterns
        p = sums / ((sums @ items.of_level) @ items.of_level.T)
    return weights, p


@pytest.mark.parametrize("observed", [1.0, 0.85])
def test_without_noise_it_is_the_optimum_that_em_finds_from_there(observed):
    X = codes(classes(8, observed=observed), 4000, 9)
    model = DPLatentClass(**given(epsilon=math.inf)).fit(X)
    weights, p = plain_em(X, model.weights_, np.hstack(list(model.probabilities_.values())))
    assert np.allclose(model.weights_, weights, atol=1e-6)
    assert np.allclose(model.theta_.probabilities, p, atol=1e-6)
    assert not model.guarantee_.private


def yes_no(seed, n, items, K):
    rng = np.random.default_rng(seed)
    p = rng.choice([0.15, 0.85], size=(K, items))
    z = rng.choice(K, size=n, p=rng.dirichlet(np.full(K, 8.0)))
    return (rng.random((n, items)) < p[z]).astype(float), z


def test_the_classes_are_found():
    X, z = yes_no(3, 20_000, 12, 4)
    levels = (2,) * 12
    free = DPLatentClass(**given(levels, n_classes=4, epsilon=math.inf)).fit(X)
    model = DPLatentClass(**given(levels, n_classes=4, epsilon=0.5)).fit(X)
    assert adjusted_rand_score(z, model.predict(X)) > adjusted_rand_score(z, free.predict(X)) - 0.02
    gap = np.abs(model.theta_.probabilities[:, None] - free.theta_.probabilities).mean(axis=2).min(axis=1)
    assert gap.max() < 0.03
    assert model.fit_check_.better
    assert model.score(X) > free.score(X) - 0.02


def test_every_kind_of_rows_gives_the_same_fit(tmp_path):
    import dask.array as da
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = codes(classes(10, observed=0.9), 3000, 11)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(5)}), tmp_path / "rows.parquet", row_group_size=700)
    held = {
        "array": X,
        "frame": pd.DataFrame(X, columns=[f"x{j}" for j in range(5)]),
        "CSR": sparse.csr_matrix(X),
        "array API": array_api_strict.asarray(X),
        "Dask": da.from_array(X, chunks=(800, 5)),
        "Parquet": read_table(tmp_path / "rows.parquet"),
    }
    first = None
    for kind, rows in held.items():
        model = DPLatentClass(**given(random_state=1)).fit(rows)
        first = model if first is None else first
        assert np.allclose(model.theta_.probabilities, first.theta_.probabilities, atol=1e-6), kind
        if kind != "Dask":
            assert np.allclose(model.predict_proba(rows), first.predict_proba(X), atol=1e-6), kind


def test_texts_holes_and_undeclared_answers():
    X = codes(classes(12), 3000, 13)
    words = np.array(["no", "yes", "perhaps", "never"])
    frame = pd.DataFrame({f"q{j}": words[X[:, j].astype(int)] for j in range(5)})
    frame.loc[::10, "q0"] = None
    frame.loc[::7, "q1"] = "what?"
    levels = {f"q{j}": list(words[:L]) for j, L in enumerate(LEVELS)}
    model = DPLatentClass(K, epsilon=1.0, delta=1e-6, levels=levels, random_state=0).fit(frame)
    numbers = X.copy()
    numbers[::10, 0], numbers[::7, 1] = np.nan, np.nan
    same = DPLatentClass(**given(random_state=0)).fit(numbers)
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


@pytest.mark.parametrize("rows", ["holes", "duplicates", "absurd", "two"])
def test_every_table_of_numbers_gets_an_answer(rows):
    X = {
        "holes": np.full((500, 5), np.nan),
        "duplicates": np.ones((500, 5)),
        "absurd": np.resize([1e308, -1e308, 5e-324, 0.5, 3.0, 0.0, 1.0], (500, 5)),
        "two": np.array([[0.0, 1, 0, 1, 0], [1, 1, 1, 1, 1]]),
    }[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FitWarning)
        warnings.filterwarnings("ignore", "delta=|random_state|expect little|2 classes may not be found")
        for epsilon in (1.0, math.inf):
            model = DPLatentClass(**given(n_classes=2, epsilon=epsilon, random_state=0)).fit(X)
            assert np.isfinite(model.theta_.probabilities).all()
            assert np.isfinite(model.predict_proba(X)).all()
            assert np.isfinite(model.conf_int()).all()


def test_independent_answers_are_no_classes():
    rng = np.random.default_rng(14)
    X = (rng.random((5000, 8)) < rng.uniform(0.2, 0.8, 8)).astype(float)
    with pytest.warns(FitWarning, match="no better than independent answers"):
        model = DPLatentClass(**given((2,) * 8, random_state=0)).fit(X)
    assert not model.fit_check_.better


@pytest.mark.parametrize("number", [2, 3])
def test_the_number_of_classes_is_found(number):
    theta, levels = classes(31, (2,) * 8, number), (2,) * 8
    model = DPLatentClass(**given(levels, n_classes="auto", random_state=0)).fit(codes(theta, 9000, 32, levels))
    assert model.n_classes_ == number == len(model.weights_) == 1 + int(np.argmin(model.n_classes_scores_))
    assert np.abs(np.sort(model.weights_) - np.sort(theta.weights)).max() < 0.1
    assert model.fit_check_.better


def test_one_class_is_found_where_answers_are_independent():
    rng = np.random.default_rng(33)
    X = (rng.random((5000, 8)) < rng.uniform(0.2, 0.8, 8)).astype(float)
    with pytest.warns(FitWarning, match="no better than independent answers"):
        model = DPLatentClass(**given((2,) * 8, n_classes="auto", random_state=0)).fit(X)
    assert model.n_classes_ == 1
    assert np.allclose(model.weights_, 1)
    assert set(model.predict(X)) == {0}
    assert np.isfinite(model.conf_int()).all()
    assert np.mean(np.diff(model.conf_int()[1:], axis=1)) < 0.2  # a share of answers is known without classes


def test_what_is_only_sampling_is_no_class(monkeypatch):
    """Where there is hardly any noise, errors are sampling, and waves scatter together."""
    rng = np.random.default_rng(35)
    X = (rng.random((20_000, 8)) < rng.uniform(0.2, 0.8, 8)).astype(float)

    def found():
        own = given((2,) * 8, n_classes="auto", epsilon=10.0, check=False, random_state=0)
        return DPLatentClass(**own).fit(X).n_classes_

    assert found() == 1
    monkeypatch.setattr(number_of_classes, "SCATTER", 0.0)
    assert found() > 1


def test_errors_grow_where_answers_depend_on_each_other_within_a_class():
    theta, levels = classes(36, (2,) * 6, 2), (2,) * 6
    X = codes(theta, 20_000, 37, levels)
    twice = np.column_stack([X[:, :3], X[:, :3]])  # every second item repeats one of the first
    twice[np.random.default_rng(38).random(twice.shape) < 0.1] = 0.0
    as_told, doubtful = (DPLatentClass(**given(levels, n_classes=2, random_state=0)).fit(rows) for rows in (X, twice))
    size = [float(np.median(model.theta_.probabilities_errors[1])) for model in (as_told, doubtful)]
    assert size[1] > 2 * size[0]


def test_finding_the_number_costs_nothing_more_and_is_saved(tmp_path):
    fixed, found = DPLatentClass(**given()), DPLatentClass(**given(n_classes="auto", random_state=0))
    here, there = (model.plan(9000) for model in (fixed, found))
    assert [step.rho for step in here.steps] == [step.rho for step in there.steps]
    assert "their number is to be found" in str(there)
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
        ({"levels": None}, "levels must name every column, but they lack columns 'x0', 'x1'"),
        ({"levels": {"x0": [0, 1], "x1": [0]}}, "levels of 'x1' must be a list of at least two different levels"),
    ],
)
def test_refusals_spend_nothing(change, words):
    X, budget = codes(classes(15), 900, 16), Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match=words):
        DPLatentClass(**{**given(budget=budget), **change}).fit(X)
    assert budget.n_charges == 0


def test_a_loaded_model_is_the_saved_one(tmp_path):
    X = codes(classes(21), 6000, 22)
    model = DPLatentClass(**given(random_state=0)).fit(X)
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.conf_int(), model.conf_int())
    assert again.probabilities_.keys() == model.probabilities_.keys()


def test_more_classes_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"n_classes must be at most the number of rows \(2\), got 3"):
        DPLatentClass(**given(delta=0.01)).fit(np.ones((2, 5)))


def test_one_item_is_refused():
    with pytest.raises(ValueError, match="at least 3 columns"):
        DPLatentClass(2, epsilon=1.0, delta=1e-6, levels={"x0": [0, 1]}).fit(np.ones((50, 1)))


# --- plans ---------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_to_expect_and_gets_better_with_rows_and_epsilon():
    made = {(n, e): DPLatentClass(**given((2,) * 10, epsilon=e)).plan(n) for n in (3000, 30_000) for e in (0.5, 1.0)}
    seen = {key: plan.prediction.median for key, plan in made.items()}
    assert seen[3000, 0.5] > seen[3000, 1.0] > seen[30_000, 1.0]
    assert seen[3000, 0.5] > seen[30_000, 0.5] >= seen[30_000, 1.0]
    assert "error that privacy adds to the probabilities" in str(made[3000, 1.0])
    assert "% of the rows will not be found" in str(made[3000, 1.0])
    assert made[30_000, 1.0].feasible
    assert not made[30_000, 1.0].remarks


def test_a_plan_warns_of_classes_that_will_not_be_found():
    plan = DPLatentClass(**given((2,) * 10, n_classes=6, epsilon=0.2)).plan(1000)
    assert not plan.feasible
    assert plan.prediction.failure > 0.3
    assert "rows" in plan.advice
    risky = DPLatentClass(**given((2,) * 10, epsilon=0.5)).plan(1000)
    assert risky.feasible
    assert "3 classes may not be found" in risky.remarks[0]


@pytest.mark.parametrize(("levels", "K"), [((2, 2), 2), ((2, 2, 2), 3), ((3, 3), 2)])
def test_more_classes_than_answers_can_tell_are_refused(levels, K):
    with pytest.raises(ValueError, match=r"at least 3 columns|n_classes must be at most 2 with so few answers"):
        DPLatentClass(**given(levels, n_classes=K)).plan(1000)


# --- intervals -----------------------------------------------------------------------------------------------------


def test_the_summary_names_shares_and_probabilities():
    model = DPLatentClass(**given(random_state=0)).fit(codes(classes(17), 4000, 18))
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
    monkeypatch.setattr(fitting, "GUESSES", 4)
    monkeypatch.setattr(fitting, "POLISHED", 1)
    monkeypatch.setattr(subject, "DRAWN", 500)
    X = codes(classes(19, levels=(2, 3, 2), observed=0.9), 300, 20, (2, 3, 2)).astype(np.float32)
    estimator = DPLatentClass(**given((2, 3, 2), n_classes=number, epsilon=1.0, delta=1e-4))
    verdict = replay(estimator, Table("as drawn", X, None), missing=True)
    assert verdict.faults == []
    assert max(verdict.used.values()) > 0.45, verdict.used


def test_classes_that_are_far_less_clear_than_supposed_are_told_of():
    """Answers that hardly differ between classes: the fit's own errors show it, so telling is free."""
    rng = np.random.default_rng(3)
    levels = {f"x{j}": [0, 1] for j in range(6)}

    def said(chance):
        group = rng.integers(2, size=(8000, 1))
        X = (rng.random((8000, 6)) < np.where(group, chance, 1 - chance)).astype(float)
        model = DPLatentClass(3, epsilon=1.0, delta=1e-6, levels=levels, random_state=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X)
        return any("less distinct than planned" in str(each.message) for each in caught)

    assert said(0.6)
    assert said(0.8)  # two classes, and three are fitted


def test_without_privacy_classes_are_never_called_unclear():
    X = np.random.default_rng(0).integers(2, size=(500, 6))
    levels = {f"x{j}": [0, 1] for j in range(6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        assert DPLatentClass(2, epsilon=math.inf, delta=1e-6, levels=levels).fit(X)._diagnostics() == []
