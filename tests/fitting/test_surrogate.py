"""Surrogate rows agree with answers, weighted EM is scikit-learn's, and a row moves the sum of scores by up to 2R."""

import math
from dataclasses import replace

import array_api_compat.numpy as xp
import array_api_strict
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.mixture import GaussianMixture as Reference

from dpem.fitting.surrogate import (
    Block,
    Converged,
    ScoreQuery,
    Surrogate,
    SurrogateFit,
    best_of,
    em,
    error_roots,
    score_query,
    share_apart,
    share_moved,
    whitener,
)
from dpem.fitting.surrogate.rows import Features, evidence_kappa, log_evidence, tilt
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily, inside
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.query import Chunk
from dpem.tables.schema import Schema

D = 3
SCHEMA = Schema.of(["a", "b", "c"], dict.fromkeys("abc", (-1.0, 1.0)), {})
every_type = pytest.mark.parametrize("kind", TYPES)


def family(kind, floor=1e-8, K=2):
    return GaussianFamily(K, TYPES[kind], np.full(D, floor), np.ones(D))


def mixture(kind):
    means = np.array([[0.2, -0.1, 0.0], [-0.3, 0.4, 0.1]])
    if not TYPES[kind].full:
        shape = np.full((2, D), 0.02) if kind == "spherical" else np.array([[0.01, 0.04, 0.02], [0.03, 0.01, 0.02]])
        return Gaussians(np.array([0.6, 0.4]), means, shape)
    one = np.array([[0.02, 0.01, 0.0], [0.01, 0.03, -0.005], [0.0, -0.005, 0.01]])
    return Gaussians(np.array([0.6, 0.4]), means, np.array([one, one if kind == "tied" else 2 * one]))


def drawn(kind, m, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    x = inside(mixture(kind), m, rng)
    x[rng.random(x.shape) < missing] = np.nan
    return x


class FirstTwo:
    """Means of the first two columns and their product."""

    def each(self, xp, x):
        return np.column_stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]])


def test_the_tilt_agrees_with_exact_answers_to_within_their_noise():
    x, query, noise = drawn("full", 4000), FirstTwo(), 0.002
    asked = query.each(xp, drawn("full", 4000, 1)[:, [1, 0, 2]]).mean(axis=0)  # another distribution
    assert np.abs(query.each(xp, x).mean(axis=0) - asked).max() > 20 * noise
    tilted = Surrogate.of(x, np.ones(len(x)), [Block(1.0, 1e4)]).add(query, asked, noise)
    reached = tilted.weights @ query.each(xp, x)
    assert np.abs(reached - asked).max() < noise
    assert tilted.weights.sum() == pytest.approx(1)


def test_a_very_noisy_answer_leaves_the_weights():
    x, query = drawn("full", 2000), FirstTwo()
    exact = query.each(xp, x).mean(axis=0)
    same = Surrogate.of(x, np.ones(len(x)), [Block(1.0, 1e4)]).add(query, exact + 0.01, 10.0)
    assert np.abs(len(x) * same.weights - 1).max() < 0.05


def test_the_tilted_weights_minimise_divergence_plus_misfit():
    rng = np.random.default_rng(0)
    features, answer, kappa = rng.standard_normal((12, 2)), np.array([0.8, -0.3]), 1.7
    base = rng.dirichlet(np.ones(12))
    found = tilt(base, Features(features, answer, np.eye(2)), kappa)

    def objective(logits):
        w = np.exp(logits - logits.max())
        w /= w.sum()
        return kappa * float(np.sum(w * np.log(w / base))) + 0.5 * float(np.sum((w @ features - answer) ** 2))

    best = minimize(objective, np.log(base), method="BFGS").fun
    assert objective(np.log(found)) == pytest.approx(best, abs=1e-6)


def test_kappa_is_near_the_one_that_answers_are_drawn_with():
    variances = np.full(40, 1e4)
    rng = np.random.default_rng(0)
    for true in (10.0, 1000.0):  # 40 answers tell κ to within a factor of about 1.25; the grid's step is 1.8
        answer = rng.standard_normal(40) * np.sqrt(1 + variances / true)
        features = Features(np.zeros((0, 40)), answer, np.diag(variances))
        assert 0.4 < evidence_kappa(features, 1.0, 1e4) / true < 2.5


def test_two_principal_components_represent_features_of_rank_two():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 2)) @ np.array([[3.0, 1, 0, 0], [0, 1, 2, 0]])
    weights = rng.dirichlet(np.ones(500))
    answer = weights @ rows + np.array([1.0, 2.0, -1.0, 0.0])
    whole = Features.none(500).extended(rows[:, :3], answer[:3], weights).extended(rows[:, 3:], answer[3:], weights)
    assert np.allclose(whole.C, np.cov(rows.T, aweights=weights, ddof=0), atol=1e-10)
    few = whole.principal(2)
    assert few.F.shape == (500, 2)
    assert np.allclose((few.F.T * weights) @ few.F, few.C, atol=1e-10)
    assert np.linalg.norm(few.a) <= np.linalg.norm([1.0, 2.0, -1.0, 0.0]) + 1e-12
    left = float(whole.a @ whole.a - few.a @ few.a)  # of directions in which no row varies
    assert log_evidence(few, 7.0) - log_evidence(whole, 7.0) == pytest.approx(left / 2)


def test_many_answers_of_one_block_are_reduced_and_still_agreed_with():
    x = drawn("diag", 1500)
    own = Surrogate.of(x, np.ones(len(x)), [Block(1.0, 100.0, components=3)])
    target = FirstTwo().each(xp, x[:500]).mean(axis=0)
    for _ in range(4):
        own = own.add(FirstTwo(), target, 0.001)
    assert np.abs(own.weights @ FirstTwo().each(xp, x) - target).max() < 0.001


@every_type
def test_weighted_em_is_scikit_learn_s_on_replicated_rows(kind):
    x = drawn(kind, 300)
    times = np.random.default_rng(1).integers(1, 5, len(x))
    fam, start = family(kind, 1e-12), mixture(kind)
    weights = times / times.sum()
    found = em(fam, start, fam.e_step(x, weights), tolerance=1e-13, max_steps=20_000)
    own = start.covariances
    precision = (
        1 / own[:, 0]
        if kind == "spherical"
        else 1 / own
        if kind == "diag"
        else np.linalg.inv(own[0] if kind == "tied" else own)
    )
    known = Reference(
        2, covariance_type=kind, weights_init=start.weights, means_init=start.means, precisions_init=precision,
        reg_covar=0, tol=1e-13, max_iter=20_000,
    ).fit(np.repeat(x, times, axis=0))  # fmt: skip
    assert found.converged
    assert found.log_likelihood == pytest.approx(known.score(np.repeat(x, times, axis=0)), abs=1e-9)
    assert np.allclose(found.theta.means, known.means_, atol=1e-4)


def test_the_best_of_several_starts_comes_first():
    x = drawn("diag", 600)
    fam = family("diag")
    rng = np.random.default_rng(0)
    weights = np.full(len(x), 1 / len(x))
    starts = [fam.random_start(x, weights, rng) for _ in range(6)]
    found = best_of(fam, starts, fam.e_step(x, weights), finalists=3)
    assert found[0].log_likelihood == max(own.log_likelihood for own in found)
    assert np.abs(np.sort(found[0].theta.weights) - [0.4, 0.6]).max() < 0.1


@every_type
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scores_are_the_derivative_of_the_log_density(kind, missing):
    x, fam = drawn(kind, 50, 3, missing), family(kind)
    x[0] = np.nan
    at = mixture(kind)
    scores = fam.scores(xp, at, x)
    rng = np.random.default_rng(0)
    for _ in range(5):
        u, h = rng.standard_normal(scores.shape[1]), 1e-5
        up, down = (np.logaddexp.reduce(fam.joint(xp, fam.moved(at, s * h * u), x), axis=1) for s in (1, -1))
        assert np.allclose((up - down) / (2 * h), scores @ u, atol=1e-5)
    assert np.abs(scores[0]).max() < 1e-12  # a row without values


def hostile(rng):
    near = np.vstack([m + s * 0.2 * rng.standard_normal((8, D)) for m in mixture("diag").means for s in (0.3, 1, 9)])
    rows = np.vstack([rng.uniform(-1, 1, (20, D)), np.sign(rng.standard_normal((8, D))), near, -near])
    rows = np.vstack([rows, np.where(rng.random(rows.shape) < 0.4, np.nan, rows)])
    odd = [[np.inf, 0, 0], [1e308, -1e308, 1e308], [np.nan] * 3, [5e-324] * 3, [-np.inf] * 3, [1e16, 1, -1]]
    return np.vstack([rows, odd])


def scoring(kind, radius, made=ScoreQuery):
    scores = family(kind).scores(xp, mixture(kind), drawn(kind, 500))
    return made(SCHEMA, family(kind), mixture(kind), whitener(scores.T @ scores / 500), radius)


@every_type
def test_rows_move_the_sum_of_scores_by_up_to_twice_the_radius(kind):
    query = scoring(kind, 0.8)
    rows = hostile(np.random.default_rng(0))
    with np.errstate(all="ignore"):
        parts = np.array([query.sum(Chunk(row[None], None)) for row in rows])
        here, there = query.sum(Chunk(rows, None)), query.sum(Chunk(array_api_strict.asarray(rows), None))
        each = query.each(xp, query.schema.coordinates(xp, rows))
    assert np.isfinite(parts).all()
    gaps = np.linalg.norm(parts[:, None] - parts[None], axis=2)
    assert gaps.max() <= query.bound.l2 * (1 + 1e-9)
    assert query.bound.l2 == pytest.approx(1.6)
    assert gaps.max() > 0.93 * query.bound.l2
    assert np.allclose(each, parts, atol=1e-12)
    assert np.allclose(here, there, atol=1e-9)


class Opposite(GaussianFamily):
    """Scores of any size that point along a row's values."""

    def scores(self, xp, theta, x):
        return np.where(np.isfinite(x), x, 0.0) * 1e6


def test_the_bound_is_reached_exactly():
    own = Opposite(2, TYPES["diag"], np.full(D, 1e-8), np.ones(D))
    query = ScoreQuery(SCHEMA, own, None, np.eye(D), 0.7)
    one, other = (query.sum(Chunk(np.array([[s, 0.0, 0.0]]), None)) for s in (1.0, -1.0))
    assert np.linalg.norm(one - other) == pytest.approx(1.4, rel=1e-12)
    assert np.linalg.norm(one - other) <= query.bound.l2


class NotClipped(ScoreQuery):
    def contributions(self, xp, x, y):
        return xp.sum(self.whitened(xp, x), axis=0)


def test_rows_detect_a_query_that_does_not_clip():
    query = scoring("diag", 0.8, NotClipped)
    rows = drawn("diag", 200)
    parts = np.array([query.sum(Chunk(row[None], None)) for row in rows])
    assert np.linalg.norm(parts[:, None] - parts[None], axis=2).max() > 1.05 * query.bound.l2


def test_nine_of_ten_norms_are_within_the_radius_and_scores_are_white():
    x, fam, at = drawn("diag", 5000), family("diag"), mixture("diag")
    weights = np.full(len(x), 1 / len(x))
    query = score_query(SCHEMA, fam, at, x, weights, np.random.default_rng(1))
    whitened = fam.scores(xp, at, x) @ query.whitener
    assert np.mean(np.linalg.norm(whitened, axis=1) <= query.radius) > 0.89
    assert np.trace(whitened.T @ whitened / len(x)) == pytest.approx(len(query.whitener), rel=0.1)


def test_more_noise_moves_more_rows():
    x, fam, at = drawn("diag", 3000), family("diag"), mixture("diag")
    weights = np.full(len(x), 1 / len(x))
    query = score_query(SCHEMA, fam, at, x, weights, np.random.default_rng(1))
    little, much = (share_moved(query, x, weights, scale) for scale in (0.001, 0.3))
    assert little < 0.01 < much
    assert math.isfinite(much)


def test_label_switching_does_not_count_as_disagreement():
    x, fam, at = drawn("diag", 1000), family("diag"), mixture("diag")
    own = Surrogate.of(x, np.ones(len(x)))
    other = Gaussians(at.weights, at.means[:, [1, 0, 2]], at.covariances)
    assert share_apart(fam, own, at, at.reordered([1, 0])) == 0
    assert share_apart(fam, own, at, other) > 0.05


def test_instability_is_by_noise_or_by_a_solution_that_is_as_likely():
    x, fam, at = drawn("diag", 1000), family("diag"), mixture("diag")
    own = Surrogate.of(x, np.ones(len(x)))
    query = score_query(SCHEMA, fam, at, x, own.weights, np.random.default_rng(1))
    best = em(fam, at, fam.e_step(x, own.weights))
    other = Gaussians(at.weights, at.means[:, [1, 0, 2]], at.covariances)
    poor = Converged(other, best.log_likelihood - 0.5, True)
    fit = SurrogateFit(fam, own, (best, poor), query=replace(query, theta=best.theta))
    assert fit.share_unstable(1000, 1.0, 0.4) == 0
    assert fit.share_unstable(1000, 1.0, 0.6) == replace(fit, queried=(other,)).share_unstable(1000, 1.0, 0.0)
    assert fit.share_unstable(1000, 1.0, 0.6) == share_apart(fam, own, best.theta, poor.theta) > 0.05
    noisy = replace(fit, noises=(0.3,))
    assert noisy.share_unstable(10**12, 1.0, 0.0) == pytest.approx(share_moved(fit.query, x, own.weights, 0.3))


def test_a_random_start_has_to_gain_more_than_the_margin():
    x, fam = drawn("diag", 600), family("diag")
    own = Surrogate.of(x, np.ones(len(x)))
    poor = Gaussians(np.array([0.5, 0.5]), np.zeros((2, D)), np.full((2, D), 0.1))  # EM cannot leave equal components
    best = own.fit(fam, [poor], restarts=4, rng=np.random.default_rng(0))[0]
    kept = own.fit(fam, [poor], restarts=4, rng=np.random.default_rng(0), margin=10.0)[0]
    assert best.log_likelihood > kept.log_likelihood + 0.1


def test_error_roots_are_the_whitener_on_the_model_s_own_rows_and_larger_on_rounded_ones():
    x, fam, at = drawn("diag", 8000), family("diag"), mixture("diag")
    even = np.full(len(x), 1 / len(x))
    query = replace(score_query(SCHEMA, fam, at, x, even, np.random.default_rng(1)), radius=1e6)
    W = query.whitener
    by_noise, by_rows, by_surrogate = error_roots(query, x, 1.0, 1.0)
    assert np.linalg.norm(by_noise - W) < 0.15 * np.linalg.norm(W)
    assert np.linalg.norm(by_rows @ by_rows.T - W @ W) < 0.3 * np.linalg.norm(W @ W)
    assert np.linalg.norm(by_surrogate) < 1e-3 * np.linalg.norm(W)  # nothing is clipped, so nothing is left open
    coarse = np.round(x / 0.4) * 0.4
    assert np.linalg.norm(error_roots(query, coarse)[0] - W) > 0.3 * np.linalg.norm(W)


def test_clipping_enlarges_the_noise_root_and_the_surrogate_root():
    x, fam, at = drawn("diag", 4000), family("diag"), mixture("diag")
    even = np.full(len(x), 1 / len(x))
    whole = score_query(SCHEMA, fam, at, x, even, np.random.default_rng(1))
    clipped = replace(whole, radius=whole.radius / 2)
    assert clipped.retained(x, even) < 0.8 * whole.retained(x, even) < 0.8
    (noise, _, surrogate), (less, _, _) = (error_roots(own, x, 1.0) for own in (clipped, whole))
    assert np.linalg.norm(noise) > 1.2 * np.linalg.norm(less)
    assert np.linalg.norm(surrogate) > 0.1 * np.linalg.norm(whole.whitener)


def test_the_radius_is_small_where_noise_is_large():
    x, fam, at = drawn("diag", 4000), family("diag"), mixture("diag")
    even, quantiles = np.full(len(x), 1 / len(x)), (0.4, 0.6, 0.9)
    small, large = (
        score_query(SCHEMA, fam, at, x, even, np.random.default_rng(1), quantiles=quantiles, noise=noise).radius
        for noise in (1.0, 1e-6)
    )
    fixed = score_query(SCHEMA, fam, at, x, even, np.random.default_rng(1), quantiles=(0.9,)).radius
    assert small < 0.9 * large
    assert large == pytest.approx(fixed)


def test_a_few_rows_far_from_the_components_do_not_decide_which_start_is_best():
    """By log-likelihood, rows of weight 0.6 % at the corners would have a component, and two others would merge."""
    known = Gaussians(np.array([0.5, 0.5]), np.array([[0.0] * D, [0.2, 0.2, 0.2]]), np.full((2, D), 0.01))
    far = np.sign(np.random.default_rng(0).normal(size=(50, D))) * 0.95
    x = np.vstack([inside(known, 4000, np.random.default_rng(1)), far])
    surrogate = Surrogate.of(x, np.r_[np.full(4000, 0.994 / 4000), np.full(50, 0.006 / 50)])
    plain, counted = (
        surrogate.fit(family("diag"), [known], restarts=8, rng=np.random.default_rng(2), margin=margin)[0].theta
        for margin in (0.0, 0.01)
    )
    assert plain.weights.min() < 0.01
    assert np.allclose(counted.means[np.argsort(counted.means[:, 0])], known.means, atol=0.05)
