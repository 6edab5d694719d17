"""Queries of linear regression: derivatives they are, and how far a row can move an answer."""

import math

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pytest

from dpem.fitting.selection import MeanResidual, ThresholdScores
from dpem.models.linear_regression.clipping import ROW_EDGES, SCORE_EDGES, normal_lengths, optimal_clip
from dpem.models.linear_regression.columns import ColumnHistograms, column_coding, numeric_columns
from dpem.models.linear_regression.fit_check import Explained
from dpem.models.linear_regression.information import Information, LengthHistogram
from dpem.models.linear_regression.moments import JointMoments
from dpem.models.linear_regression.rows import Frame
from dpem.models.linear_regression.sandwich import ScoreVariance
from dpem.models.linear_regression.scores import Residuals, Score
from dpem.models.linear_regression.selection import Signs
from dpem.queries.histograms import BINS
from dpem.tables.schema import Schema

CORRELATION = np.array([[1.0, 0.6, 0.2], [0.6, 1.0, -0.3], [0.2, -0.3, 1.0]])


def schema(p=3):
    return Schema.of([f"x{j}" for j in range(p)], {f"x{j}": (-1.0, 1.0) for j in range(p)}, {}, y_bounds=(-1.0, 1.0))


def frame():
    values, vectors = np.linalg.eigh(CORRELATION)
    scale = np.diag(1 / np.array([0.2, 0.1, 0.3]))
    return Frame(np.array([0.1, -0.2, 0.0]), scale, 0.05, 0.25, CORRELATION, (vectors / np.sqrt(values)).T)


def at(kind, *more, sigma=0.7):
    return kind(schema(), frame(), np.array([0.1, 0.5, -0.4, 0.3]), sigma, *more)


def conditional(theta, row, sigma):
    """Mean and variance of a standardised response given the observed entries of its row, under joint normality."""
    slopes = frame().whiten.T @ theta[1:]
    seen = np.flatnonzero(~np.isnan(row))
    across = CORRELATION[seen] @ slopes
    pull = np.linalg.solve(CORRELATION[np.ix_(seen, seen)], across)
    return theta[0] + pull @ row[seen], slopes @ CORRELATION @ slopes - pull @ across + sigma**2


def log_likelihood(theta, x, y, sigma, known):
    """Of the responses given the observed entries, with the variances that ``known`` coefficients lead to."""
    place, total = frame(), 0.0
    for row, response in zip((x - place.centre) * np.diag(place.scale), y, strict=True):
        away = (response - place.y_centre) / place.y_spread - conditional(theta, row, sigma)[0]
        total -= away**2 / conditional(known, row, sigma)[1] / 2
    return total


def test_the_score_is_the_derivative_of_the_observed_likelihood_through_the_means():
    rng = np.random.default_rng(1)
    x, y = 0.3 * rng.standard_normal((40, 3)), 0.3 * rng.standard_normal(40)
    x[rng.random(x.shape) < 0.4] = np.nan
    query = at(Score, math.inf)
    theta, step = query.theta, 1e-5
    ends = [[log_likelihood(theta + s * step * e, x, y, 0.7, theta) for s in (1, -1)] for e in np.eye(4)]
    numeric = np.array([(high - low) / (2 * step) for high, low in ends])
    assert np.isnan(x).any(axis=1).sum() > 10
    np.testing.assert_allclose(query.contributions(xp, x, y), 0.7 * numeric, rtol=1e-6)


def test_the_information_is_minus_the_mean_derivative_of_the_score():
    rng = np.random.default_rng(2)
    place = frame()
    z = rng.multivariate_normal(np.zeros(3), CORRELATION, 200_000)
    theta = np.array([0.1, 0.5, -0.4, 0.3])
    a = np.column_stack([np.ones(len(z)), z @ place.whiten.T])
    y = place.y_centre + place.y_spread * (a @ theta + 0.7 * rng.standard_normal(len(z)))
    x = place.centre + z / np.diag(place.scale)
    clips = optimal_clip(2000, 0.01, normal_lengths(3))
    off = Score(schema(), place, theta - np.array([0, 0.05, 0, 0]), 0.7, clips.norm)
    moved = 0.7 * off.contributions(xp, x, y) / len(z)
    packed = at(Information, 10.0).contributions(xp, x, y) / len(z)
    assert clips.kappa < 0.99
    assert moved[1] == pytest.approx(0.05 * clips.kappa * packed[1], rel=0.05)
    assert packed[:4].mean() == pytest.approx(1.0, rel=0.01)


def test_tail_scores_are_the_difference_of_scores_with_two_clips():
    rng = np.random.default_rng(5)
    x, y = 0.3 * rng.standard_normal((500, 3)), 0.3 * rng.standard_normal(500)
    near, far = (at(Score, radius).contributions(xp, x, y) for radius in (1.2, 2.4))
    np.testing.assert_allclose(at(Score, 1.2, 1.2).contributions(xp, x, y), far - near, atol=1e-9)


def coding():
    """That of three columns 0.3 wide around 0."""
    whole = numeric_columns(np.column_stack([np.full((4, BINS), 1 / BINS), np.zeros(4)]), 0.0)
    return column_coding(schema(), whole._replace(centre=np.zeros(4), spread=np.full(4, 0.3)), jointly=True)


QUERIES = {
    "columns": ColumnHistograms(schema()),
    "moments": JointMoments(schema(), coding(), 0.0, 0.3, 1.5),
    "lengths": at(LengthHistogram, ROW_EDGES),
    "tails": at(LengthHistogram, SCORE_EDGES, True),
    "variance of the scores": at(ScoreVariance, np.eye(4), 1.5, 1.2),
    "variance of the scores, wide": at(ScoreVariance, np.eye(4)[1:], 3.0, 0.8),
    "information": at(Information, 2.3),
    "score": at(Score, 2.6),
    "tail scores": at(Score, 1.2, 1.4),
    "residuals": at(Residuals, 3.0),
    "explained": at(Explained, 0.1, 0.8, 0.4),
}


def hostile(rng):
    """One row each: ordinary ones, ends of the bounds, missing values, opposite ones, infinite and overflowing ones."""
    kinds = [rng.uniform(-1, 1, (60, 4)), rng.choice([-1.0, 1.0], (60, 4)), 0.1 * rng.standard_normal((30, 4))]
    pool = np.concatenate(kinds)
    pool = np.concatenate([pool, -pool, rng.choice([1e308, -1e308, np.inf, np.nan, 5e-324, 1.0], (60, 4))])
    pool[rng.random(pool.shape) < 0.15] = np.nan
    return pool


@pytest.mark.parametrize("name", QUERIES)
def test_no_row_moves_an_answer_further_than_stated_and_some_row_does_so_far(name):
    query = QUERIES[name]
    pool = hostile(np.random.default_rng(3))
    with np.errstate(all="ignore"):
        each = np.array([query.block(xp, row[None, :3], row[3:]) for row in pool])
    assert np.isfinite(each).all()
    assert np.linalg.norm(each, axis=1).max() <= query.bound.size_l2
    assert np.abs(each).max() <= query.bound.size_linf
    apart = each[:, None, :] - each[None, :, :]
    assert np.linalg.norm(apart, axis=2).max() <= query.bound.l2
    assert np.abs(apart).max() <= query.bound.linf
    assert np.linalg.norm(apart, axis=2).max() >= 0.9 * query.bound.l2


@pytest.mark.parametrize("name", QUERIES)
def test_a_sum_is_the_sum_of_its_rows_in_any_library(name):
    query = QUERIES[name]
    pool = hostile(np.random.default_rng(4))
    with np.errstate(all="ignore"):
        whole = query.block(xp, pool[:, :3], pool[:, 3])
        one_by_one = sum(query.block(xp, row[None, :3], row[3:]) for row in pool)
        strict = query.block(
            array_api_strict, array_api_strict.asarray(pool[:, :3]), array_api_strict.asarray(pool[:, 3])
        )
    np.testing.assert_allclose(whole, one_by_one, atol=1e-9)
    np.testing.assert_allclose(np.asarray(strict), whole, atol=1e-9)


SIDES = {
    "from the middle": {"middle": 0.1},
    "from a fit": {"chosen": np.array([2, 0, 1]), "frame": frame(), "theta": np.array([0.1, 0.5, -0.4, 0.3])},
}


@pytest.mark.parametrize("name", SIDES)
def test_no_row_moves_a_score_further_than_stated(name):
    """In the middle of a table as at its edge: the scores are suprema, so single rows hardly count."""
    rng = np.random.default_rng(8)
    pool = hostile(rng)
    query = ThresholdScores(schema(), Signs(**SIDES[name]), mean=0.3)
    balance = MeanResidual(schema(), Signs(**SIDES[name]))
    with np.errstate(all="ignore"):
        counts = np.array([query.block(xp, row[None, :3], row[3:]) for row in pool])
        signs = np.array([balance.block(xp, row[None, :3], row[3:]) for row in pool])
    assert np.max(np.abs(counts)) == 0.5
    assert np.max(np.linalg.norm(signs[:, None] - signs, axis=2)) == pytest.approx(balance.bound.l2)
    moved = 0.0
    for _ in range(200):
        rest = counts[rng.integers(len(pool), size=rng.integers(1, 8))].sum(axis=0)
        a, b = counts[rng.integers(len(pool), size=2)]
        moved = max(moved, float(np.max(np.abs(query.folded(rest + a) - query.folded(rest + b)))))
    assert 0.9 * query.bound.linf <= moved <= query.bound.linf
    with np.errstate(all="ignore"):
        strict = query.block(
            array_api_strict, array_api_strict.asarray(pool[:, :3]), array_api_strict.asarray(pool[:, 3])
        )
    np.testing.assert_allclose(np.asarray(strict), counts.sum(axis=0), rtol=1e-12, atol=1e-12)
