"""What to expect of latent classes before anything is paid for: how far probabilities are off, what is not found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpem.fitting.model import Effect, PredictedFit
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import normal
from dpem.fitting.shares import with_failures
from dpem.models.latent_class import steps as fitting
from dpem.models.latent_class.queries import Items
from dpem.models.latent_class.steps import CLEAR
from dpem.query import FloatArray

#: What is assumed of an item in a class: one answer has this chance, the others share the rest.
TYPICAL = 0.8
EFFECT = Effect("chance of the answer that is typical of a class", TYPICAL, (0.65, 0.8, 0.9), percent=True)
#: Multiplications that seeing a step's precision may take, and the most effects of items that are looked at.
WORK, MOST_EFFECTS = 4e8, 48
#: The law of the steps' noise scatters less than fits do, by this factor: starts differ, too.
WIDER = 1.4
#: The error at which it is twice that of a linear fit; that of a fit whose start failed; the clearance at which every
#: other start fails. All three are set against simulated fits of other seeds than those of the tables.
BENT, FAILED, EVEN = 0.12, 0.25, 1.1
#: What is said of tables that hold no such classes (``python -m studies.honest.sweep classes``).
REAL = (
    "Few real tables hold classes as clear as that: of public ones, three classes at epsilon=1, half had probabilities "
    "more than 0.12 from those without privacy."
)
#: Rows of classes: items, shares, probabilities, how many.
Drawing = Callable[[Items, FloatArray, FloatArray, int], fitting.Drawn]


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


def predict_fit(
    items: Items, K: int, n: int, noises: Noises, drawn: Drawing, typical: float = TYPICAL, reckoned: bool = False
) -> PredictedFit:
    """The prediction for classes as assumed. ``drawn`` draws rows of such classes, with their chances; ``reckoned``:
    their number is to be found.
    """
    some = _some(items, K)
    w, p = assumed(some, K, typical)
    mu = p @ some.effects
    edge = fitting.noise_edge(mu.shape[1], fitting.with_sampling(noises.pairs, n))
    clearance = fitting.weakest(w, mu) / edge
    smallest = min(1.0, CLEAR * edge / float(np.mean(np.sum((mu - w @ mu) ** 2, axis=1))))
    failure = 1 / (1 + (clearance / EVEN) ** 4)
    median, low, high = _errors(some, w, p, n, noises, drawn, failure) if noises.sums else (0.0, 0.0, 0.0)
    prediction = Prediction(
        "error that privacy adds to the probabilities of a class",
        median,
        low,
        high,
        failure,
        "So far, as a root mean square, the answers' probabilities will lie from those without privacy. "
        f"Classes with less than about {100 * smallest:.2g} % of the rows will not be found. {REAL}",
        f"Assumed: {K} classes{' (their number is to be found)' if reckoned else ''} of nearly equal size, each with "
        f"an answer to every item that has a chance of about {100 * typical:.0f} %.",
    )
    if clearance >= CLEAR:
        return PredictedFit(prediction)
    factor = CLEAR / clearance
    need = f"about {_round(n * factor):,} rows, or an epsilon about {factor:.2g} times as large, or fewer classes"
    remark = (
        f"{K} classes may not be found: the noise hides the weakest direction in which they differ; {need} would do."
    )
    return PredictedFit(prediction, (remark,), clearance >= 0.5, need)


def _some(items: Items, K: int) -> Items:
    """The items, or the first of them where all take long: classes are clear then, and more items change little."""
    effects = np.cumsum([level - 1 for level in items.levels])
    return Items(items.levels[: max(3, K // 2, int(np.sum(effects <= MOST_EFFECTS)))])


def _errors(
    items: Items, w: FloatArray, p: FloatArray, n: int, noises: Noises, drawn: Drawing, failure: float
) -> tuple[float, float, float]:
    """Median, 5 % and 95 % of the root mean square by which noise moves probabilities: precisions of the start and of
    the steps add up (:func:`~dpem.models.latent_class.steps.step`), so one step of all their precision stands for them.
    The mean square is a sum of squares of normal numbers; its logarithm scatters by √(2/its degrees). Where errors are
    large, what was released is far from linear in what is sought, and they are larger than that (:data:`BENT`).
    """
    known = _known(items, w, p, n, noises)
    rows = int(np.clip(WORK / len(known) ** 2, 1024, 4096))
    whole = math.fsum(noise**-2 for noise in noises.sums) ** -0.5
    fit = fitting.Fit(w, p @ items.effects, known, known)
    told = np.concatenate([w, (w[:, None] * p).ravel()])  # as expected, so that the step only adds precision
    fit = fitting.step(items, fit, p, np.ones(len(items.levels)), told, whole, drawn(items, w, p, rows))
    K = len(w)
    turn = np.kron(np.eye(K), items.back.T)
    covariance = turn @ np.linalg.inv(fit.precision)[K:, K:] @ turn.T
    error = math.sqrt(float(np.trace(covariance)) / len(covariance))
    degrees = float(np.trace(covariance)) ** 2 / float(np.sum(covariance**2))
    error *= 1 + (error / BENT) ** 2
    return with_failures(min(error, FAILED), WIDER / math.sqrt(2 * degrees), failure, FAILED)


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


def _round(value: float) -> int:
    """Two leading digits."""
    size = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return math.ceil(value / size) * size
