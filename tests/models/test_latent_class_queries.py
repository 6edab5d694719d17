"""Queries and the family of latent classes: bounds that no row exceeds, scores that are derivatives, exact EM steps."""

import itertools

import array_api_compat.numpy as xp
import numpy as np
import pytest

from dpem.fitting.surrogate import ScoreQuery, Surrogate, share_apart, whitener
from dpem.models.latent_class import steps
from dpem.models.latent_class.errors import Parameters
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.models.latent_class.planning import LatentClass
from dpem.models.latent_class.queries import CellCounts, Items, PairMoments, answers
from dpem.query import Chunk
from dpem.tables.schema import Schema

LEVELS = (2, 3, 2, 4, 2)


K = 3


def schema(levels=LEVELS):
    names = [f"x{j}" for j in range(len(levels))]
    own = {name: tuple(map(float, range(count))) for name, count in zip(names, levels, strict=True)}
    return Schema.of(names, {}, own, every_level=True)


def classes(seed=0, levels=LEVELS, K=K):
    """Well separated classes."""
    rng, items = np.random.default_rng(seed), Items(levels)
    p = items.floored(np.hstack([rng.dirichlet(np.full(L, 0.4), size=K) for L in levels]), 0.03)
    return Classes(rng.dirichlet(np.full(K, 8.0)), p)


def family(theta, levels=LEVELS, observed=1.0, **more):
    return ClassFamily(
        len(theta.weights), Items(levels), np.full(len(levels), observed), theta.weights @ theta.probabilities, **more
    )


def codes(theta, n, seed, levels=LEVELS, observed=1.0):
    """Rows as numbers 0, 1, … with NaN for missing values."""
    own = family(theta, levels, observed)
    x = own.draw(theta, n, np.random.default_rng(seed))
    hot = [x[:, a:b] for a, b in itertools.pairwise(own.items.first)]
    return np.column_stack([np.where(np.isnan(h[:, 0]), np.nan, np.argmax(h, axis=1)) for h in hot])


def score_query(theta, radius=1.5, levels=LEVELS):
    own = family(theta, levels)
    p = own.parameters
    return ScoreQuery(schema(levels), own, theta, whitener(np.diag(np.linspace(0.01, 1, p))), radius)


def queries():
    return [PairMoments(schema(), Items(LEVELS)), CellCounts(schema(), Items(LEVELS)), score_query(classes(1))]


def every_row(levels=LEVELS):
    rows = np.array(list(itertools.product(*([*range(L), np.nan] for L in levels))))
    absurd = np.array([[value] * len(levels) for value in (1e308, -1e308, np.inf, -np.inf, 0.5, 5e-324)])
    return np.vstack([rows, absurd])


@pytest.mark.parametrize("query", queries(), ids=lambda query: type(query).__name__)
def test_no_pair_of_rows_moves_a_sum_beyond_its_bound(query):
    """Every row there is, missing values and undeclared levels included."""
    sums = np.array([query.sum(Chunk(row[None], None)) for row in every_row()])
    assert np.isfinite(sums).all()
    squares = np.sum(sums**2, axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares - 2 * sums @ sums.T, 0))
    assert gaps.max() <= query.bound.l2 * (1 + 1e-9)
    assert np.sqrt(squares.max()) <= query.bound.size_l2 * (1 + 1e-9)
    assert np.abs(sums).max() <= query.bound.size_linf * (1 + 1e-9)
    assert (sums.max(axis=0) - sums.min(axis=0)).max() <= query.bound.linf * (1 + 1e-9)


def furthest(query, rows):
    sums = np.array([query.sum(Chunk(row[None], None)) for row in rows])
    return max(np.linalg.norm(a - b) for a in sums for b in sums)


def test_the_bounds_are_nearly_reached():
    """Four yes/no items: opposite answers to two of them differ in everything but one product in three."""
    levels = (2, 2, 2, 2)
    rows = every_row(levels)
    for query, part in ((PairMoments(schema(levels), Items(levels)), 0.8), (score_query(classes(1), 1e-3), 0.999)):
        own = every_row() if isinstance(query, ScoreQuery) else rows
        assert furthest(query, own) >= part * query.bound.l2


def test_a_level_that_counts_twice_would_exceed_the_bound(monkeypatch):
    names = [f"x{j}" for j in range(4)]
    known = Schema.of(names, {}, dict.fromkeys(names, (0.0, 0.0, 1.0)), every_level=True)
    query = PairMoments(known, Items((3,) * 4))
    rows = np.array(list(itertools.product([0.0, 1.0, np.nan], repeat=4)))
    assert furthest(query, rows) <= query.bound.l2
    twice = answers(xp, known.coordinates(xp, np.array([[0.0] * 4])), query.items)
    assert twice.tolist() == [[0.5, 0.5, 0.0] * 4]
    monkeypatch.setattr("dpem.models.latent_class.queries.answers", lambda xp, x, items: 2.0 * (x > 0))
    assert furthest(query, rows) > query.bound.l2


@pytest.mark.parametrize("query", [queries()[0], queries()[2]], ids=["PairMoments", "ScoreQuery"])
def test_a_sum_is_the_sum_of_what_rows_contribute(query):
    x = schema().coordinates(xp, every_row()[:200])
    assert np.allclose(query.each(xp, x).sum(axis=0), query.contributions(xp, x, None))


def test_cells_are_counted_and_lead_back_to_rows():
    items, X = Items(LEVELS), codes(classes(2), 500, 3, observed=0.7)
    counts = CellCounts(schema(), items).sum(Chunk(X, None))
    rows = items.rows_of(np.arange(len(counts)), np.ones(len(LEVELS), dtype=bool))
    hot = answers(xp, schema().coordinates(xp, X), items)
    assert counts.sum() == 500
    assert np.array_equal(counts @ rows, hot.sum(axis=0))
    assert np.array_equal(rows.T @ (counts[:, None] * rows), hot.T @ hot)


def test_effects_are_corners_of_a_simplex():
    items = Items(LEVELS)
    assert np.allclose(np.sum(items.effects**2, axis=1), 1)
    assert np.allclose(items.of_level.T @ items.effects, 0)


def test_scores_are_derivatives_along_the_coordinates_of_moved():
    theta = classes(4)
    own = family(theta, observed=0.8)
    x = own.draw(theta, 300, np.random.default_rng(5))

    def density(at):
        return np.logaddexp.reduce(own.joint(xp, at, x), axis=1)

    steps_ = 1e-6 * np.eye(own.parameters)
    numeric = np.column_stack([(density(own.moved(theta, h)) - density(own.moved(theta, -h))) / 2e-6 for h in steps_])
    assert np.allclose(own.scores(xp, theta, x), numeric, atol=1e-4)
    empty = np.full((1, x.shape[1]), np.nan)
    assert np.allclose(own.scores(xp, theta, empty), 0)


def plain_em(X, theta, levels=LEVELS, rounds=3000):
    """Textbook EM, items with missing values left out of a row."""
    items, weights, p = Items(levels), theta.weights, theta.probabilities
    hot = np.hstack([(X[:, [j]] == np.arange(L)) for j, L in enumerate(levels)]).astype(float)
    patterns, counts = np.unique(hot, axis=0, return_counts=True)
    for _ in range(rounds):
        joint = patterns @ np.log(np.maximum(p, 1e-12)).T + np.log(weights)
        r = np.exp(joint - joint.max(axis=1, keepdims=True))
        r *= (counts / r.sum(axis=1))[:, None]
        weights = r.sum(axis=0) / len(X)
        sums = r.T @ patterns
        p = sums / ((sums @ items.of_level) @ items.of_level.T)
    return weights, p


def test_an_em_step_on_weighted_rows_is_the_one_on_repeated_rows():
    theta = classes(6)
    own = family(theta)
    rows = answers(xp, own.draw(theta, 40, np.random.default_rng(7)), own.items)
    times = np.random.default_rng(8).integers(1, 6, 40)
    weighted = own.statistics(xp, theta, rows, times.astype(float))
    assert np.allclose(weighted, own.statistics(xp, theta, np.repeat(rows, times, axis=0), None))
    new = own.m_step(theta, weighted / times.sum())
    plain = plain_em(_codes_of(np.repeat(rows, times, axis=0)), theta, rounds=1)
    assert np.allclose(new.weights, plain[0])
    assert np.allclose(new.probabilities, plain[1])


def _codes_of(rows, levels=LEVELS):
    hot = [rows[:, a:b] for a, b in itertools.pairwise(Items(levels).first)]
    return np.column_stack([np.where(h.sum(axis=1) > 0, np.argmax(h, axis=1), np.nan) for h in hot])


def test_the_surrogate_reproduces_an_exact_answer():
    """With hardly any noise the tilted rows have the pairs of the given classes."""
    theta = classes(9)
    own = family(theta, floor=TUNING.floor)
    query = PairMoments(schema().unit(), own.items)
    x = own.items.rows_of(np.arange(own.items.cells(own.observed < 1)), own.observed < 1)
    exact = own.cell_weights(theta, x) @ query.each(xp, x)
    surrogate = steps.surrogate_rows(own, query, exact, 1e-4)
    assert np.abs(surrogate.weights @ query.each(xp, surrogate.x) - exact).max() < 1e-3
    assert np.abs(surrogate.base @ query.each(xp, surrogate.x) - exact).max() > 0.05
    better = steps.with_base(own, surrogate, theta)
    assert better is not surrogate  # the rows have exactly such classes
    found = steps.fitted(own, better, [theta], 0, restarts=0)[0].theta
    assert np.abs(found.probabilities - theta.probabilities).max() < 0.02


def test_the_simpler_model_has_the_margins_of_the_classes():
    """With the released margins, whose noise the classes do not have, classes would win by that noise."""
    theta, none = classes(42), np.zeros(0)
    known = Parameters(theta.weights, theta.probabilities, np.ones(len(LEVELS)), none, none)
    simpler = LatentClass(schema(), K, Items(LEVELS)).simpler(known)
    assert np.allclose(simpler.probabilities, [theta.weights @ theta.probabilities])
    assert simpler.weights.tolist() == [1.0]


def test_labels_that_are_only_switched_are_the_same_classes():
    theta = classes(40)
    own = family(theta)
    rows = answers(xp, own.draw(theta, 400, np.random.default_rng(0)), own.items)
    surrogate = Surrogate.of(rows, np.ones(400))
    other = Classes(theta.weights[::-1].copy(), theta.probabilities[::-1].copy())
    assert share_apart(own, surrogate, theta, other) == pytest.approx(0.0)
    assert share_apart(own, surrogate, theta, classes(41)) > 0.1


def test_the_largest_class_comes_first():
    theta = Parameters(
        np.array([0.2, 0.8]),
        np.array([[0.1, 0.9], [0.7, 0.3]]),
        np.ones(1),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.zeros((2, 2, 2)),
    ).largest_first()
    assert theta.weights.tolist() == [0.8, 0.2]
    assert theta.probabilities[0].tolist() == [0.7, 0.3]
    assert theta.weights_errors.tolist() == [[2.0, 1.0], [4.0, 3.0]]
