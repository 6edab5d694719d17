"""Queries of the Gaussian mixture: their sensitivities hold and are nearly reached, and their sums are right."""

import math

import array_api_compat.numpy as xp
import numpy as np
import pytest

from dpem.fitting.surrogate import ScoreQuery
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians, _patterns
from dpem.models.gaussian_mixture.location import Centres, Margins, SecondMoments, Spreads
from dpem.models.gaussian_mixture.score_steps import Leads
from dpem.models.gaussian_mixture.sketch import Sketch, largest_slice
from dpem.queries.narrow import zero_nonfinite
from dpem.query import Bound, Chunk
from dpem.tables.schema import Schema

D = 3
SCHEMA = Schema.of(["a", "b", "c"], dict.fromkeys("abc", (-1.0, 1.0)), {})
CENTRE, SPREAD = np.array([0.1, -0.2, 0.0]), np.array([0.05, 0.2, 0.1])
CORRELATION = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.0]])


def mixture(kind, K=2):
    means = np.array([[0.2, -0.1, 0.0], [-0.3, 0.4, 0.1], [0.5, 0.5, 0.5]])[:K]
    if kind in ("diag", "spherical"):
        variances = np.full((K, D), 0.01) if kind == "spherical" else np.array([[0.01, 0.04, 0.02]] * K)
        return Gaussians(np.full(K, 1 / K), means, variances)
    covariances = np.array([np.diag(SPREAD) @ CORRELATION @ np.diag(SPREAD)] * K)
    return Gaussians(np.full(K, 1 / K), means, covariances)


def scores(kind, radius=1.3, K=2, made=ScoreQuery):
    family = GaussianFamily(K, TYPES[kind], np.full(D, 1e-9), np.ones(D))
    return made(SCHEMA, family, mixture(kind, K), np.eye(family.count), radius)


QUERIES = {
    "centres": Centres(SCHEMA),
    "spreads": Spreads(SCHEMA, CENTRE),
    "moments": SecondMoments(SCHEMA, CENTRE, SPREAD, math.sqrt(D)),
    "moments, more mean": SecondMoments(SCHEMA, CENTRE, SPREAD, 2.0, 1.0),
    "sketch": Sketch(SCHEMA, CENTRE, SPREAD, CORRELATION, np.eye(D)[:2], 0.7, np.array([0.5, 0.3, 0.2])),
    "sketch of complete rows": Sketch(
        SCHEMA, CENTRE, SPREAD, CORRELATION, np.eye(D)[:2], 0.7, np.array([0.5, 0.3, 0.2]), complete=True
    ),
    "margins": Margins(SCHEMA, CENTRE, SPREAD),
    **{f"scores, {kind}": scores(kind) for kind in TYPES},
    "scores, one component": scores("full", K=1),
    "leads": Leads(SCHEMA, mixture("diag"), mixture("full", 1)),
}
for_each = pytest.mark.parametrize("name", QUERIES)


def hostile_rows(rng):
    """Rows at random, at the corners, near the centres, mirrored, with missing values, and of numbers out of range."""
    near = np.vstack(
        [m + s * rng.standard_normal((8, D)) * SPREAD for m in mixture("full", 3).means for s in (0.3, 1, 9)]
    )
    rows = np.vstack([rng.uniform(-1, 1, (20, D)), np.sign(rng.standard_normal((8, D))), near, -near, np.zeros((1, D))])
    rows = np.vstack([rows, np.where(rng.random(rows.shape) < 0.4, np.nan, rows)])
    odd = [[np.inf, 0, 0], [1e308, -1e308, 1e308], [np.nan] * 3, [5e-324] * 3, [-np.inf] * 3, [1e16, 1, -1]]
    return np.vstack([rows, odd])


def each(query, rows):
    with np.errstate(all="ignore"):
        return np.array([query.sum(Chunk(row[None], None)) for row in rows])


@for_each
def test_pairs_of_rows_differ_by_up_to_the_sensitivity(name):
    query = QUERIES[name]
    parts = each(query, hostile_rows(np.random.default_rng(0)))
    assert np.isfinite(parts).all()
    gaps = np.sqrt(np.maximum(((parts[:, None] - parts[None]) ** 2).sum(-1), 0))
    assert gaps.max() <= query.bound.l2 * (1 + 1e-12)
    assert np.linalg.norm(parts, axis=1).max() <= query.bound.size_l2 * (1 + 1e-12)
    assert gaps.max() > 0.6 * query.bound.l2


def test_the_bound_of_the_leads_is_reached():
    means = np.array([[0.2, -0.1, 0.0], [-0.3, 0.4, 0.1]])
    tight = Gaussians(np.full(2, 0.5), means, np.full((2, D), 1e-4))
    query = Leads(SCHEMA, tight, mixture("full", 1))
    a, b = each(query, np.array([means[0], [means[0, 0], means[1, 1], means[1, 2]]]))  # in a component, and in none
    assert np.linalg.norm(a - b) == pytest.approx(query.bound.l2, rel=1e-9)


def test_a_row_without_values_contributes_to_the_empty_rows_only():
    empty, other = each(QUERIES["centres"], np.array([[np.nan] * D, [0.1, np.nan, 0.2]]))
    assert np.array_equal(empty[:-1], np.zeros(2 * D))
    assert empty[-1] == pytest.approx(math.sqrt(D / 2))
    assert other[-1] == 0
    for name in ("sketch", "margins", "spreads", "moments"):
        assert not each(QUERIES[name], np.full((1, D), np.nan)).any()


@pytest.mark.parametrize("name", ["margins", "scores, diag", "scores, full"])
def test_contributions_by_row_are_those_of_the_sum(name):
    rows, query = hostile_rows(np.random.default_rng(7))[:-6], QUERIES[name]
    assert np.allclose(query.each(xp, SCHEMA.coordinates(xp, rows)), each(query, rows), atol=1e-9)


def test_the_moments_bound_is_reached():
    query = QUERIES["moments, more mean"]
    t = -query.kappa / 2  # the cosine at which two rows differ most
    z = query.radius * np.array([[1.0, 0, 0], [t, math.sqrt(1 - t * t), 0]])
    a, b = each(query, np.clip(CENTRE + SPREAD * z, -1, 1))
    assert np.linalg.norm(a - b) == pytest.approx(query.bound.l2, rel=1e-9)


def test_the_sketch_bound_is_that_of_the_worst_shift_and_no_shift_exceeds_it():
    a = np.array([0.5, 0.3, 0.2])
    s = np.linspace(0, 2 * np.pi, 100_001)
    worst = 2 * (a.sum() - np.min(np.cos(np.outer(s, [1, 2, 3])) @ a))
    assert worst <= largest_slice(a) <= worst * (1 + 1e-5)
    query = QUERIES["sketch"]
    shift = s[np.argmin(np.cos(np.outer(s, [1, 2, 3])) @ a)] / query.base
    rows = CENTRE + SPREAD * np.array([[0.0, 0, 0], [shift, shift, 0]])
    assert (np.abs(rows) <= 1).all()
    one, other = each(query, rows)
    assert np.linalg.norm(one - other) == pytest.approx(query.bound.l2, rel=1e-4)


@pytest.mark.parametrize("kind", TYPES)
def test_the_sum_over_rows_is_that_of_single_rows(kind):
    query = scores(kind)
    rows = hostile_rows(np.random.default_rng(2))
    with np.errstate(all="ignore"):
        assert np.allclose(query.sum(Chunk(rows, None)), each(query, rows).sum(axis=0), rtol=1e-9, atol=1e-9)


def test_missing_values_are_integrated_out_of_the_density():
    rng = np.random.default_rng(3)
    rows = rng.uniform(-0.6, 0.6, (20, D))
    rows[:, 1] = np.nan
    for kind in ("diag", "full"):
        whole = mixture(kind)
        cov = whole.covariances[:, [0, 2]] if kind == "diag" else whole.covariances[:, [0, 2]][:, :, [0, 2]]
        marginal = Gaussians(whole.weights, whole.means[:, [0, 2]], cov)
        assert np.allclose(whole.log_density(xp, rows), marginal.log_density(xp, rows[:, [0, 2]]), rtol=1e-12)


def test_expected_moments_of_missing_values_are_those_of_rows_filled_at_random():
    """Full covariances: E[vvᵀ | seen] against an average over draws of what is not seen."""
    rng = np.random.default_rng(4)
    own = mixture("full", 1)
    row = np.array([0.25, np.nan, 0.05])
    cov, mean = own.covariances[0], own.means[0]
    seen, lost = [0, 2], [1]
    back = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, lost)])
    centre = mean[lost] + (row[seen] - mean[seen]) @ back
    spread = np.sqrt(cov[1, 1] - cov[np.ix_(lost, seen)] @ back)
    drawn = np.tile(row, (40_000, 1))
    drawn[:, 1] = centre + spread[0, 0] * rng.standard_normal(40_000)
    query = scores("full", 1e6, K=1)
    one = query.sum(Chunk(row[None], None))
    many = query.sum(Chunk(drawn, None)) / len(drawn)
    assert np.allclose(one, many, atol=0.02)


class NoClip(ScoreQuery):
    def contributions(self, xp, x, y):
        return xp.sum(zero_nonfinite(xp, self.whitened(xp, x)), axis=0)


class TooNarrow(ScoreQuery):
    @property
    def bound(self):
        return Bound(l2=0.7 * super().bound.l2, size_l2=super().bound.size_l2)


class MeansForFree(SecondMoments):
    @property
    def bound(self):
        return Bound(l2=math.sqrt(2) * self.radius**2, size_l2=super().bound.size_l2)


class HalfASketch(Sketch):
    @property
    def bound(self):
        return Bound(l2=math.sqrt(0.5) * super().bound.l2, size_l2=super().bound.size_l2)


class MissingCountTwice(Spreads):
    def contributions(self, xp, x, y):
        return super().contributions(xp, xp.where(xp.isfinite(x), x, xp.zeros_like(x)), y) * 2


@pytest.mark.parametrize(
    "planted",
    [
        scores("full", made=NoClip),
        scores("diag", made=NoClip),
        scores("full", K=1, made=TooNarrow),
        MeansForFree(SCHEMA, CENTRE, SPREAD, 2.0, 1.0),
        HalfASketch(SCHEMA, CENTRE, SPREAD, CORRELATION, np.eye(D)[:2], 0.7, np.array([0.5, 0.3, 0.2])),
        MissingCountTwice(SCHEMA, CENTRE),
    ],
    ids=lambda own: type(own).__name__,
)
def test_hostile_rows_detect_planted_bugs(planted):
    parts = each(planted, hostile_rows(np.random.default_rng(0)))
    gaps = np.sqrt(np.maximum(((parts[:, None] - parts[None]) ** 2).sum(-1), 0))
    assert gaps.max() > planted.bound.l2 * (1 + 1e-6)


def test_conditional_covariances_of_nearly_equal_columns_are_semidefinite():
    rng = np.random.default_rng(3)
    least = []
    for _ in range(40):
        turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        covariance = turn @ np.diag(10.0 ** -np.array([0.0, 3.0, 7.0, 11.0])) @ turn.T
        one = Gaussians(np.ones(1), np.zeros((1, 4)), (covariance + covariance.T)[None] / 2)
        x = np.where(rng.random((20, 4)) < 0.5, np.nan, rng.uniform(-1, 1, (20, 4)))
        for _, _, rows in one.parts(xp, x):
            if rows[0].missing is not None:
                least.append(np.linalg.eigvalsh(rows[0].missing).min())
    assert min(least) > -1e-13


@pytest.mark.parametrize("full", [False, True])
def test_the_density_of_a_row_depends_on_no_other_row(full):
    rng = np.random.default_rng(4)
    K, d = 3, 11
    variances = rng.uniform(1e-4, 1e-1, (K, d))
    shapes = np.array([np.diag(v) + 0.5 * np.sqrt(np.outer(v, v)) for v in variances]) if full else variances
    own = Gaussians(np.full(K, 1 / K), rng.uniform(-0.5, 0.5, (K, d)), shapes)
    x = np.where(rng.random((301, d)) < 0.1, np.nan, rng.uniform(-1, 1, (301, d)))
    for first in (x, np.where(np.isnan(x), 0.25, x)):
        other = first.copy()
        other[-1, 0] = np.nan  # the last row changes, and no other row's density may, not by a bit
        np.testing.assert_array_equal(own.joint(xp, first)[:-1], own.joint(xp, other)[:-1])


@pytest.mark.parametrize("d", [2, 52, 53])
def test_patterns_of_missing_values_are_those_of_the_rows(d):
    mask = (np.random.default_rng(0).random((40, d)) < 0.5).astype(float)
    patterns, place = _patterns(xp, np.vstack([mask, mask]))
    assert np.array_equal(patterns[place], np.vstack([mask, mask]))
    assert len(patterns) == (80 if d > 52 else len(np.unique(mask, axis=0)))
