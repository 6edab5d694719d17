"""What plans of groups, classes and lines say beforehand: better with rows and ε, and about what then happens."""

import itertools

import numpy as np
import pytest

from dpem import DPGaussianMixture, DPLatentClass, DPMixtureRegression
from dpem.fitting.rehearsal import boundary_sample, moved, with_failures
from dpem.models.gaussian_mixture import planning as groups
from dpem.models.latent_class import planning as classes
from dpem.models.latent_class.queries import Items

ITEMS = {f"x{j}": [0, 1] for j in range(6)}
MAKERS = {
    "groups": (lambda e, K=2: DPGaussianMixture(K, epsilon=e, delta=1e-6, bounds=(-12, 12)), 2),
    "classes": (lambda e, K=2: DPLatentClass(K, epsilon=e, delta=1e-6, levels=ITEMS), 6),
    "lines": (lambda e, K=2: DPMixtureRegression(K, epsilon=e, delta=1e-6, bounds=(-6, 6), y_bounds=(-9, 9)), 2),
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
    make, d = MAKERS["groups"]
    weak, strong = (make(1.0).plan(5000, d, effect=apart).prediction for apart in (3.0, 6.0))
    assert strong.median < weak.median
    assert "centres 6 spreads apart" in strong.assumed


def test_a_plan_of_wide_classes_looks_at_some_of_the_items(monkeypatch):
    """The information matrix is that of 48 effects a class, not of 120."""
    asked, right = [], classes.information
    monkeypatch.setattr(classes, "information", lambda S, weight: asked.append(S.shape[1]) or right(S, weight))
    levels = {f"x{j}": list(range(4)) for j in range(40)}
    DPLatentClass(8, epsilon=1.0, delta=1e-6, levels=levels).plan(50_000, 40)
    assert 0 < max(asked) <= 7 + 8 * classes.MOST_EFFECTS


def test_neighbouring_centres_are_as_far_apart_as_is_said():
    for K, d in ((2, 2), (3, 5), (5, 2), (6, 1), (4, 3)):
        place = groups.centres(K, d, 5.0)
        apart = np.linalg.norm(place[:, None] - place, axis=2) + np.where(np.eye(K) > 0, np.inf, 0)
        assert apart.min(axis=1) == pytest.approx(np.full(K, 5.0))


def test_watched_rows_stand_for_all():
    rng = np.random.default_rng(0)
    before = rng.normal(0, 3, (20_000, 3))
    after = before + rng.normal(0, 0.5, before.shape)
    rows, weight = boundary_sample(before)
    assert weight.sum() == pytest.approx(1)
    counted = np.mean(before.argmax(axis=1) != after.argmax(axis=1))
    assert moved(before[rows], after[rows], weight) == pytest.approx(counted, rel=0.05)


def test_failed_starts_move_the_median_only_if_they_are_many():
    alone, some, many = (with_failures(0.02, 0.4, part, 0.4) for part in (0.0, 0.2, 0.6))
    assert alone[0] == pytest.approx(0.02)
    assert alone[0] < some[0] < 0.03
    assert some[2] == many[0] == 0.4


@pytest.mark.filterwarnings("ignore:The classes are not stable")
def test_probabilities_are_as_accurate_as_predicted():
    """Ten private fits of classes as supposed, beside non-private ones: a median of ten is known to a fourth."""
    theta = classes.overlapping(Items((2,) * 6), 2)
    shares, p = theta.weights, theta.probabilities
    off = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        group = rng.choice(2, size=3000, p=shares)
        X = (rng.random((3000, 6)) < p[:, 1::2][group]).astype(float)
        private, plain = (
            DPLatentClass(2, epsilon=e, delta=1e-6, levels=ITEMS, random_state=seed).fit(X) for e in (1.0, np.inf)
        )
        first, second = (np.hstack(list(m.probabilities_.values())) for m in (private, plain))
        off.append(min(np.sqrt(np.mean((first - own) ** 2)) for own in (second, second[::-1])))
    predicted = MAKERS["classes"][0](1.0).plan(3000, 6).prediction
    assert 0.6 < predicted.median / np.median(off) < 1.6
