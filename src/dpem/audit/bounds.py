"""Lower bounds on ε that hold with a stated confidence, from independent runs of a mechanism on each of two
neighbouring tables. Nothing else is assumed.
"""

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
#: Part of the runs on which events are chosen; the others judge them.
CHOOSING = 0.1
#: Thresholds that are tried.
THRESHOLDS = 400
#: Runs between two reports of progress.
BATCH = 100


@dataclass(frozen=True)
class Event:
    """A set of outcomes: scores at or beyond a threshold, and which of the two tables makes it more likely."""

    threshold: float
    above: bool
    likelier_on_first: bool

    def count(self, scores: FloatArray) -> int:
        inside = scores >= self.threshold if self.above else scores <= self.threshold
        return int(np.count_nonzero(inside))


@dataclass(frozen=True)
class LowerBound:
    """ε is at least ``epsilon``, by this event, with the stated confidence; ``runs`` were made on both tables."""

    epsilon: float
    event: Event
    runs: int


def lower_confidence_limit(count: ArrayLike, runs: int, failure: float) -> NDArray[np.float64]:
    """Clopper and Pearson's lower limit of a probability: below it with probability at least 1 − failure.

    *Lemma.* *Proof.* The limit L(c) is the p at which c or more successes have probability ``failure``, and it grows
    with c. If L(C) > p, then C exceeds every c with L(c) ≤ p; the least such C has P_p(C or more) ≤ failure. ∎
    """
    c = np.asarray(count, dtype=float)
    return np.where(c > 0, beta.ppf(failure, np.maximum(c, 1e-9), runs - c + 1), 0.0)


def upper_confidence_limit(count: ArrayLike, runs: int, failure: float) -> NDArray[np.float64]:
    """The upper limit: that of the successes is one minus the lower limit of the failures."""
    return 1.0 - lower_confidence_limit(runs - np.asarray(count, dtype=float), runs, failure)


def lower_bound(first: ArrayLike, second: ArrayLike, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """A lower bound on the ε of a mechanism at ``delta``, from the scores of its outcomes on two neighbours.

    A score may be anything that is computed from what was released. The better it distinguishes the tables, the larger
    the bound; the likelihood ratio is the best there is.

    *Lemma.* If the mechanism is (ε, δ)-private, the result exceeds ε with probability at most 1 − confidence.
    *Proof.* An event S (a threshold, a side, and the table that makes it likelier) is chosen on a part of the runs. The
    other runs are independent of that choice, so given S the counts in them are binomial with p = P(M(D) ∈ S) and
    q = P(M(D′) ∈ S), or with D and D′ exchanged. Unless one of the limits fails, p_low ≤ p ≤ e^ε·q + δ ≤ e^ε·q_high +
    δ, that is log((p_low − δ)/q_high) ≤ ε. Privacy holds in both orders of the tables, so whichever order S names, the
    inequality is one that the claim asserts. Two events are chosen and judged, with two limits each: every limit has a
    quarter of 1 − confidence to fail with. ∎ One event is the best by the normal curves that fit the scores, the other
    the best as counted: the first is not misled by chance, the second not by scores that are not normal.

    >>> rng = np.random.default_rng(0)
    >>> found = lower_bound(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000), delta=1e-5)
    >>> 1.8 < found.epsilon < 4.38  # the exact ε of a shift by one standard deviation, at this δ
    True
    """
    tables = [np.asarray(scores, dtype=float) for scores in (first, second)]
    if min(map(len, tables)) < 20:
        raise ValueError(f"a bound needs at least 20 runs on each table, got {len(tables[0])} and {len(tables[1])}.")
    if not 0 < confidence < 1:
        raise ArgumentError("confidence", f"must lie strictly between 0 and 1, got {confidence!r}.")
    failure = (1 - confidence) / 4
    cuts = [math.ceil(CHOOSING * len(scores)) for scores in tables]
    choosing = [np.sort(scores[:cut]) for scores, cut in zip(tables, cuts, strict=True)]
    judging = [scores[cut:] for scores, cut in zip(tables, cuts, strict=True)]
    thresholds = np.unique(np.quantile(np.concatenate(choosing), np.linspace(0, 1, THRESHOLDS), method="nearest"))
    bounds = []
    for shares in (_by_curve, _by_count):
        event = _best(
            thresholds, [shares(scores, thresholds) for scores in choosing], list(map(len, judging)), delta, failure
        )
        likelier, other = judging if event.likelier_on_first else judging[::-1]
        p = float(lower_confidence_limit(event.count(likelier), len(likelier), failure))
        q = float(upper_confidence_limit(event.count(other), len(other), failure))
        bounds.append(LowerBound(float(_epsilon(p, q, delta)), event, sum(map(len, tables))))
    return max(bounds, key=lambda bound: bound.epsilon)


def _epsilon(p: ArrayLike, q: ArrayLike, delta: float) -> NDArray[np.float64]:
    """log((p − δ)/q), or 0 where that is negative."""
    return np.log(np.maximum((np.asarray(p) - delta) / np.asarray(q), 1.0))


def _best(thresholds: FloatArray, shares: list[FloatArray], sizes: list[int], delta: float, failure: float) -> Event:
    """The event with the largest bound if of ``sizes`` runs on either table the given shares were at or above the
    thresholds.
    """
    best, event = -1.0, Event(float(thresholds[0]), True, True)
    for above in (True, False):
        inside = [share if above else 1 - share for share in shares]
        for on_first in (True, False):
            i, j = (0, 1) if on_first else (1, 0)
            p = lower_confidence_limit(inside[i] * sizes[i], sizes[i], failure)
            q = upper_confidence_limit(inside[j] * sizes[j], sizes[j], failure)
            bounds = _epsilon(p, q, delta)
            place = int(np.argmax(bounds))
            if bounds[place] > best:
                best, event = float(bounds[place]), Event(float(thresholds[place]), above, on_first)
    return event


def _by_count(ordered: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The part of the scores at or above each threshold, half a score towards the middle: none counts as impossible."""
    above = len(ordered) - np.searchsorted(ordered, thresholds, side="left")
    return np.asarray((above + 0.5) / (len(ordered) + 1))


def _by_curve(ordered: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The same by the normal curve with their mean and spread."""
    spread = max(float(np.std(ordered)), 1e-12 * float(np.max(np.abs(ordered))), 1e-300)
    return np.asarray(ndtr((np.mean(ordered) - thresholds) / spread))


class Subject(Protocol):
    """A mechanism with a claim, and two neighbouring tables chosen to distinguish best."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def adversaries(self) -> tuple[str, ...]:
        """The adversaries, by what each observes: one column of scores for each."""

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        """Scores of that many independent runs on D, or on its neighbour D′: a row for each run."""


@dataclass(frozen=True)
class Finding:
    """A claim (ε, δ), and the lower bound on ε that an audit found; ``seconds`` are processor time, ``note`` is shown
    with the subject.

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
        """Whether the claim survived. A violated one is wrong, up to what the confidence leaves."""
        return self.lower <= self.epsilon

    def __str__(self) -> str:
        verdict = "consistent" if self.consistent else "VIOLATED"
        what = ", ".join(part for part in (self.subject, self.adversary, self.note) if part)
        return (
            f"{what}: claimed {self.epsilon:g}, at least {self.lower:.2f} "
            f"with {self.confidence * 100:g} % confidence: {verdict}"
        )


def findings(subject: Subject, first: FloatArray, second: FloatArray, seconds: float) -> list[Finding]:
    """One finding for each adversary, from the scores on D and on its neighbour."""
    results = []
    for column, adversary in enumerate(subject.adversaries):
        bound = lower_bound(first[:, column], second[:, column], subject.delta)
        claim = (subject.name, adversary, subject.epsilon, subject.delta)
        results.append(Finding(*claim, bound.epsilon, bound.runs, seconds))
    return results


def audit(subject: Subject, runs: int, *, tick: Callable[[int], object] = lambda runs: None) -> list[Finding]:
    """Run a subject on both of its tables, half of the runs each, and bound its ε from below.

    ``tick`` is called with the number of runs that were finished since it was called before.
    """
    if runs < 40:
        raise ArgumentError("runs", f"must be at least 40, 20 on each table, got {runs!r}.")
    if not math.isfinite(subject.epsilon):
        raise ArgumentError("epsilon", "must be finite: without it nothing is claimed.")
    begun, scores = time.process_time(), []
    for neighbour in (False, True):
        parts = []
        for done in range(0, runs // 2, BATCH):
            with thread_limit(1):  # the tables are too small for a second thread
                parts.append(subject.scores(neighbour, min(BATCH, runs // 2 - done)))
            tick(len(parts[-1]))
        scores.append(np.concatenate(parts))
    return findings(subject, scores[0], scores[1], time.process_time() - begun)
