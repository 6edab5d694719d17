"""The predictions of plans of mixtures and latent classes: they improve with rows and ε, and agree with fits."""

import itertools

import numpy as np
import pytest

from dpem import DPGaussianMixture, DPLatentClass, DPMixtureRegression
from dpem.fitting.rehearsal import boundary_sample, moved, with_failures
from dpem.models.gaussian_mixture import planning as gaussian_mixture
from dpem.models.latent_class import planning as latent_class
from dpem.models.latent_class.queries import Items

ITEMS = {f"x{j}": [0, 1] for j in range(6)}
MAKERS = {
    "gaussian-mixture": (lambda e, K=2: DPGaussianMixture(K, epsilon=e, delta=1e-6, bounds=(-12, 12)), 2),
    "latent-class": (lambda e, K=2: DPLatentClass(K, epsilon=e, delta=1e-6, levels=ITEMS), 6),
    "mixture-regression": (
        lambda e, K=2: DPMixtureRegression(K, epsilon=e, delta=1e-6, bounds=(-6, 6), y_bounds=(-9, 9)),
        2,
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_more_never_predicts_worse(name):
    make, d = MAKERS[name]
    by_epsilon = [make(epsilon).plan(5000, d).prediction for epsilon in (0.3, 0.45, 0.9, 1.0, 3.0)]
    by_rows = [make(0.8).plan(n, d).prediction for n in (1000, 1900, 2100, 8000, 50_000)]
    for predicted in (by_epsilon, by_rows):
        for before, after in itertools.pairwise(predicted):
            assert after.median <= before.median
            assert after.failure <= before.failure


@pytest.mark.parametrize("name", MAKERS)
def test_the_median_lies_within_the_interval(name):
    make, d = MAKERS[name]
    for n, epsilon in ((300, 0.1), (5000, 1.0), (10**6, 10.0)):
        predicted = make(epsilon).plan(n, d).prediction
        assert 0 < predicted.low <= predicted.median <= predicted.high <= 1
        assert 0 <= predicted.failure <= 1


def test_stronger_effects_need_fewer_rows():
    make, d = MAKERS["gaussian-mixture"]
    weak, strong = (make(1.0).plan(5000, d, effect=distance).prediction for distance in (3.0, 6.0))
    assert strong.median < weak.median
    assert "centres 6 spreads apart" in strong.assumed


def test_a_plan_of_many_items_uses_some_of_them(monkeypatch):
    """The information matrix is that of 48 effects a class, not of 120."""
    widths, information = [], latent_class.information
    monkeypatch.setattr(
        latent_class, "information", lambda S, weight: widths.append(S.shape[1]) or information(S, weight)
    )
    levels = {f"x{j}": list(range(4)) for j in range(40)}
    DPLatentClass(8, epsilon=1.0, delta=1e-6, levels=levels).plan(50_000, 40)
    assert 0 < max(widths) <= 7 + 8 * latent_class.MOST_EFFECTS


def test_neighbouring_centres_have_the_stated_distance():
    for K, d in ((2, 2), (3, 5), (5, 2), (6, 1), (4, 3)):
        centres = gaussian_mixture.centres(K, d, 5.0)
        distance = np.linalg.norm(centres[:, None] - centres, axis=2) + np.where(np.eye(K) > 0, np.inf, 0)
        assert distance.min(axis=1) == pytest.approx(np.full(K, 5.0))


def test_a_sample_of_boundary_rows_estimates_the_share_that_moves():
    rng = np.random.default_rng(0)
    before = rng.normal(0, 3, (20_000, 3))
    after = before + rng.normal(0, 0.5, before.shape)
    rows, weight = boundary_sample(before)
    assert weight.sum() == pytest.approx(1)
    moved_share = np.mean(before.argmax(axis=1) != after.argmax(axis=1))
    assert moved(before[rows], after[rows], weight) == pytest.approx(moved_share, rel=0.05)


def test_failed_starts_move_the_median_only_if_they_are_frequent():
    none, some, many = (with_failures(0.02, 0.4, share, 0.4) for share in (0.0, 0.2, 0.6))
    assert none[0] == pytest.approx(0.02)
    assert none[0] < some[0] < 0.03
    assert some[2] == many[0] == 0.4


@pytest.mark.filterwarnings("ignore:The classes are not stable")
def test_probabilities_are_as_accurate_as_predicted():
    """Ten private fits under the assumptions of the plan, beside non-private ones; the median of ten is uncertain by a
    quarter.
    """
    theta = latent_class.overlapping(Items((2,) * 6), 2)
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        group = rng.choice(2, size=3000, p=theta.weights)
        X = (rng.random((3000, 6)) < theta.probabilities[:, 1::2][group]).astype(float)
        private, plain = (
            DPLatentClass(2, epsilon=e, delta=1e-6, levels=ITEMS, random_state=seed).fit(X) for e in (1.0, np.inf)
        )
        first, second = (np.hstack(list(m.probabilities_.values())) for m in (private, plain))
        errors.append(min(np.sqrt(np.mean((first - other) ** 2)) for other in (second, second[::-1])))
    predicted = MAKERS["latent-class"][0](1.0).plan(3000, 6).prediction
    assert 0.6 < predicted.median / np.median(errors) < 1.6
