"""Lower bounds on ε with a stated confidence, from independent runs of a mechanism on two neighbouring tables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from scipy.stats import beta

from dpem._threads import thread_limit
from dpem._validation import ArgumentError
from dpem.query import FloatArray

#: The confidence of every bound in this package, unless another is given.
CONFIDENCE = 0.999
#: The fraction of the runs on which events are chosen. The bounds are computed from the others.
CHOOSING = 0.1
#: The number of thresholds that are tried.
THRESHOLDS = 400
#: The number of runs between two reports of progress.
BATCH = 100


@dataclass(frozen=True)
class Event:
    """A set of outcomes: scores at or beyond a threshold; and which of the two tables makes it more likely."""

    threshold: float
    above: bool
    likelier_on_first: bool

    def count(self, scores: FloatArray) -> int:
        inside = scores >= self.threshold if self.above else scores <= self.threshold
        return int(np.count_nonzero(inside))


@dataclass(frozen=True)
class LowerBound:
    """ε is at least ``epsilon``, according to the probabilities of ``event`` in ``runs`` runs on both tables."""

    epsilon: float
    event: Event
    runs: int


def lower_confidence_limit(count: ArrayLike, runs: int, failure: float) -> NDArray[np.float64]:
    """Clopper and Pearson's lower confidence limit of a probability p, from ``count`` successes.

    *Lemma.* It exceeds p with probability at most ``failure``. *Proof.* The limit L(c) is the probability at which c or
    more successes have probability ``failure``, and increases with c. Let c* be the least c with L(c) > p. The limit
    exceeds p if there are c* or more successes, which has probability at most ``failure`` at p < L(c*). ∎
    """
    c = np.asarray(count, dtype=float)
    return np.where(c > 0, beta.ppf(failure, np.maximum(c, 1e-9), runs - c + 1), 0.0)


def upper_confidence_limit(count: ArrayLike, runs: int, failure: float) -> NDArray[np.float64]:
    """Clopper and Pearson's upper confidence limit: one minus the lower limit for the number of failures."""
    return 1.0 - lower_confidence_limit(runs - np.asarray(count, dtype=float), runs, failure)


def lower_bound(first: ArrayLike, second: ArrayLike, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """A lower bound on the ε of a mechanism at ``delta``, from scores of its outcomes on two neighbours.

    A score may be any function of what was released. The better it distinguishes the tables, the larger the bound; the
    likelihood ratio is best.

    *Lemma.* If the mechanism is (ε, δ)-private, the result exceeds ε with probability at most 1 − confidence.
    *Proof.* An event S (a threshold, a side, and the table that makes it more likely) is chosen on some of the runs.
    The other runs are independent of that choice, so given S their counts are binomial with p = P(M(D) ∈ S) and
    q = P(M(D′) ∈ S), or with D and D′ exchanged. If all confidence limits hold, p_low ≤ p ≤ e^ε·q + δ ≤ e^ε·q_high + δ,
    so log((p_low − δ)/q_high) ≤ ε. Privacy claims this inequality for both orders of the tables. There are two events
    with two limits each, and each limit fails with probability at most (1 − confidence)/4. ∎ One event is the best
    for normal distributions with the means and variances of the scores, the other for the scores as counted: the first
    is robust to chance, the second to scores that are not normal.

    >>> rng = np.random.default_rng(0)
    >>> bound = lower_bound(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000), delta=1e-5)
    >>> 1.8 < bound.epsilon < 4.38  # the exact ε of a shift by one standard deviation, at this δ
    True
    """
    tables = [np.asarray(scores, dtype=float) for scores in (first, second)]
    if min(map(len, tables)) < 20:
        raise ValueError(f"a bound needs at least 20 runs on each table, got {len(tables[0])} and {len(tables[1])}.")
    if not 0 < confidence < 1:
        raise ArgumentError("confidence", f"must lie strictly between 0 and 1, got {confidence!r}.")
    failure = (1 - confidence) / 4
    splits = [np.split(scores, [math.ceil(CHOOSING * len(scores))]) for scores in tables]
    choosing, remaining = [np.sort(chosen) for chosen, _ in splits], [scores for _, scores in splits]
    thresholds = np.unique(np.quantile(np.concatenate(choosing), np.linspace(0, 1, THRESHOLDS), method="nearest"))
    bounds = []
    for tail_shares in (_normal_tail, _empirical_tail):
        shares = [tail_shares(scores, thresholds) for scores in choosing]
        event = _best_event(thresholds, shares, list(map(len, remaining)), delta, failure)
        likelier, other = remaining if event.likelier_on_first else remaining[::-1]
        p = float(lower_confidence_limit(event.count(likelier), len(likelier), failure))
        q = float(upper_confidence_limit(event.count(other), len(other), failure))
        bounds.append(LowerBound(float(_epsilon(p, q, delta)), event, sum(map(len, tables))))
    return max(bounds, key=lambda bound: bound.epsilon)


def _epsilon(p: ArrayLike, q: ArrayLike, delta: float) -> NDArray[np.float64]:
    """log((p − δ)/q), or 0 where that is negative."""
    return np.log(np.maximum((np.asarray(p) - delta) / np.asarray(q), 1.0))


def _best_event(
    thresholds: FloatArray, shares: list[FloatArray], sizes: list[int], delta: float, failure: float
) -> Event:
    """The event with the largest bound if, of ``sizes[i]`` runs on table i, the fractions ``shares[i]`` have scores at
    or above the thresholds.
    """
    best, event = -1.0, Event(float(thresholds[0]), True, True)
    for above in (True, False):
        inside = [share if above else 1 - share for share in shares]
        for on_first in (True, False):
            i, j = (0, 1) if on_first else (1, 0)
            p = lower_confidence_limit(inside[i] * sizes[i], sizes[i], failure)
            q = upper_confidence_limit(inside[j] * sizes[j], sizes[j], failure)
            bounds = _epsilon(p, q, delta)
            k = int(np.argmax(bounds))
            if bounds[k] > best:
                best, event = float(bounds[k]), Event(float(thresholds[k]), above, on_first)
    return event


def _empirical_tail(ordered: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The fraction of the scores at or above each threshold, smoothed so that it is never 0 or 1."""
    above = len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    return np.asarray((above + 0.5) / (len(ordered) + 1))


def _normal_tail(ordered: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The probability at or above each threshold of the normal distribution with the scores' mean and variance."""
    spread = max(float(np.std(ordered)), 1e-12 * float(np.max(np.abs(ordered))), 1e-300)
    return np.asarray(ndtr((np.mean(ordered) - thresholds) / spread))


class Subject(Protocol):
    """A mechanism with a claimed (ε, δ), and two neighbouring tables that its releases distinguish well."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The adversaries, named by what each observes. Each has a column of scores."""

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        """The scores of independent runs on D, or on its neighbour D′; one row per run."""


@dataclass(frozen=True)
class Finding:
    """A claimed (ε, δ), and an audit's lower bound on ε. ``seconds`` are processor time, ``note`` is printed with the
    subject.

    >>> print(Finding("values", "every release", 1.0, 1e-5, 0.41, 2000, 3.0))
    values, every release: claimed 1, at least 0.41 with 99.9 % confidence: consistent
    """

    subject: str
    adversary: str
    epsilon: float
    delta: float
    lower: float
    runs: int
    seconds: float
    confidence: float = CONFIDENCE
    note: str = ""

    @property
    def consistent(self) -> bool:
        """Whether the bound is at most the claimed ε. If not, the claim is wrong, at the stated confidence."""
        return self.lower <= self.epsilon

    def __str__(self) -> str:
        verdict = "consistent" if self.consistent else "VIOLATED"
        subject = ", ".join(part for part in (self.subject, self.adversary, self.note) if part)
        return (
            f"{subject}: claimed {self.epsilon:g}, at least {self.lower:.2f} "
            f"with {self.confidence * 100:g} % confidence: {verdict}"
        )


def findings(subject: Subject, first: FloatArray, second: FloatArray, seconds: float) -> list[Finding]:
    """One finding for each adversary, from the scores on D (``first``) and on its neighbour."""
    results = []
    for column, adversary in enumerate(subject.adversaries):
        bound = lower_bound(first[:, column], second[:, column], subject.delta)
        claim = (subject.name, adversary, subject.epsilon, subject.delta)
        results.append(Finding(*claim, bound.epsilon, bound.runs, seconds))
    return results


def audit(subject: Subject, runs: int, *, tick: Callable[[int], object] = lambda runs: None) -> list[Finding]:
    """Run a mechanism on both tables, half of the runs each, and bound its ε from below.

    ``tick`` is called with the number of runs finished since its last call.
    """
    if runs < 40:
        raise ArgumentError("runs", f"must be at least 40, 20 on each table, got {runs!r}.")
    if not math.isfinite(subject.epsilon):
        raise ArgumentError("epsilon", "must be finite: without it nothing is claimed.")
    start, scores = time.process_time(), []
    for neighbour in (False, True):
        parts = []
        for done in range(0, runs // 2, BATCH):
            with thread_limit(1):  # a second thread does not speed up tables this small
                parts.append(subject.scores(neighbour, min(BATCH, runs // 2 - done)))
            tick(len(parts[-1]))
        scores.append(np.concatenate(parts))
    return findings(subject, scores[0], scores[1], time.process_time() - start)
