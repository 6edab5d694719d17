"""What to expect of latent classes before anything is paid for: how many rows change class, which classes are lost."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.models import _latent_class_fit as fitting
from dpem.models._latent_class_fit import CLEAR
from dpem.planning import Effect, Outlook, Prediction
from dpem.planning.rehearsal import normal
from dpem.query import FloatArray
from dpem.questions.answers import Items, chances

#: What is assumed of an item in a class: one answer has this chance, the others share the rest.
TYPICAL = 0.8
EFFECT = Effect("chance of the answer that is typical of a class", TYPICAL, (0.65, 0.8, 0.9), percent=True)
#: Below this many times the noise's edge the directions of the classes are lost in it.
HOPELESS = 0.5
#: How many noisy fits are imagined.
IMAGINED = 40


class Noises(NamedTuple):
    """Standard deviations of the noise of each release: pairs of answers, waves, and each step's sums by class."""

    pairs: float
    waves: float
    sums: tuple[float, ...]


def most_classes(items: Items) -> int:
    """How many classes there can be: no more parameters than there are patterns of answers, and at least 3 items.

    >>> most_classes(Items((2, 2, 2))), most_classes(Items((2, 2))), most_classes(Items((2,) * 12))
    (2, 1, 315)
    """
    if len(items.levels) < 3:
        return 1
    patterns = math.prod(items.levels)
    return patterns // (1 + sum(items.levels) - len(items.levels))


def assumed(items: Items, K: int, typical: float = TYPICAL) -> tuple[FloatArray, FloatArray]:
    """Nearly equal shares, and classes that each have a typical answer to every item: the same ones in every plan."""
    p = np.zeros((K, items.first[-1]))
    places, jitter, w = normal(0, (K, len(items.levels))), normal(1, (K, len(items.levels))), normal(2, (K,))
    for j, L in enumerate(items.levels):
        rank = np.argsort(np.argsort(places[:, j]))  # every level is typical of as many classes as any other
        chance = np.clip(typical + 0.05 * jitter[:, j], typical - 0.1, min(typical + 0.1, 0.98))
        p[:, items.first[j] : items.first[j] + L] = ((1 - chance) / (L - 1))[:, None]
        p[np.arange(K), items.first[j] + rank % L] = chance
    w = np.exp(0.2 * w)
    return w / w.sum(), p


def outlook(items: Items, K: int, n: int, noises: Noises, drawn: Any, typical: float = TYPICAL) -> Outlook:
    """The prediction for classes as assumed. ``drawn(w, p)`` draws rows of such classes, with their chances."""
    w, p = assumed(items, K, typical)
    mu = p @ items.effects
    h, r = drawn(w, p)
    fit = fitting.Fit(
        w, mu, _known(items, w, p, n, noises), fitting.exact(items, w, p, fitting.Drawn(h, r)).information
    )
    for noise in noises.sums:
        fit = fitting.step(items, fit, p, np.ones(len(items.levels)), _sums(w, p), noise, fitting.Drawn(h, r))
    edge = fitting.noise_edge(mu.shape[1], fitting.with_sampling(noises.pairs, n))
    clearance = fitting.weakest(w, mu) / edge
    changed = _changed(items, fit, h, n, 1 + (CLEAR / clearance) ** 2) if noises.sums else np.zeros(1)
    smallest = min(1.0, CLEAR * edge / float(np.mean(np.sum((mu - w @ mu) ** 2, axis=1))))
    failure = float(np.clip(1 - clearance / CLEAR, 0.0, 1.0))
    low, median, high = (float(q) for q in np.quantile(changed, [0.05, 0.5, 0.95]))
    prediction = Prediction(
        "share of rows in another class than without privacy",
        median,
        low,
        high,
        failure,
        f"Classes with less than about {100 * smallest:.2g} % of the rows will not be found.",
        f"Assumed: {K} classes of nearly equal size, each with an answer to every item that has a chance of "
        f"about {100 * typical:.0f} %.",
    )
    if clearance >= CLEAR:
        return Outlook(prediction)
    factor = CLEAR / clearance
    need = f"about {_round(n * factor):,} rows, or an epsilon about {factor:.2g} times as large, or fewer classes"
    remark = (
        f"{K} classes may not be found: the noise hides the weakest direction in which they differ; {need} would do."
    )
    return Outlook(prediction, (remark,), clearance >= 0.5, need)


def _known(items: Items, w: FloatArray, p: FloatArray, n: int, noises: Noises) -> FloatArray:
    """How precisely the start knows x = (w, μ), if it succeeds."""
    mu, ones = p @ items.effects, np.ones(len(items.levels))
    (i, j), error = items.pairs, fitting.with_sampling(noises.pairs, n)
    moments = fitting.Moments(
        ones, w @ mu, np.full(mu.shape[1], error), w @ (mu[:, i] * mu[:, j]), np.full(len(i), error)
    )
    where = fitting.plane(items, moments, min(len(w) - 1, mu.shape[1]))
    phases = fitting.phases(items, moments, where)
    nothing = np.zeros(2 * phases.shape[1], dtype=complex)
    sketch = fitting.Sketch(phases, nothing, fitting.with_sampling(noises.waves, 2 * n))
    x = np.concatenate([w, mu.ravel()])
    J = fitting.Misfit(items, moments, sketch, near=x).derivative(x)
    return np.asarray(J.T @ J) / fitting.DOUBT


def _sums(w: FloatArray, p: FloatArray) -> FloatArray:
    """The mean sums by class, so that a step stays where it is and only adds precision."""
    return np.concatenate([w, (w[:, None] * p).ravel()])


def _changed(items: Items, fit: fitting.Fit, h: FloatArray, n: int, caution: float) -> FloatArray:
    """Shares of the drawn rows that change class when a fit is moved by the noise, in several imagined tables, each
    with a non-private fit of its own.
    """
    K = len(fit.w)
    whole = np.zeros_like(fit.precision)
    whole[:K, :K] = 1 / fitting.SUM**2
    own = _normal(3, n * fit.information + whole)
    noisy = own + caution * _normal(4, fit.precision)

    def classes(move: FloatArray) -> Any:
        w = np.clip(fit.w + move[:K], 1e-3, 1.0)
        p = items.within(items.probabilities(fit.mu + move[K:].reshape(K, -1)), 1e-3)
        return np.argmax(chances(numpy_api, h, w, p), axis=1)

    return np.array([np.mean(classes(a) != classes(b)) for a, b in zip(own, noisy, strict=True)])


def _normal(seed: int, precision: FloatArray) -> FloatArray:
    """Normal vectors, one in a row, with that inverse covariance."""
    values, vectors = np.linalg.eigh(precision)
    return np.asarray((normal(seed, (IMAGINED, len(values))) / np.sqrt(np.clip(values, 1e-6, None))) @ vectors.T)


def _round(value: float) -> int:
    """Two leading digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return math.ceil(value / size) * size
