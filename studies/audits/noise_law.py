"""Tests of the recorded noise: its scale, its distribution, and that no draw is used twice.

The noise is the answer minus the statistic. Its distribution function maps Gaussian and Laplace noise to uniform
variables. Of a selection only the winners are known, but their distribution is, too: each is drawn from the remaining
coordinates with probability proportional to exp(score). A Kolmogorov–Smirnov test detects a wrong scale or
distribution, a correlation detects noise that is reused within a fit, and equal values detect noise that is repeated
between fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from dpem.audit.tape import Answered, Tape
from dpem.query import FloatArray

#: Each test raises a false alarm with this probability at most.
FALSE_ALARM = 1e-6


def standardised(event: Answered) -> FloatArray:
    """The noise of one answer as numbers that should be uniform on (0, 1)."""
    noise = (np.asarray(event.answer, dtype=float) - event.statistic) / event.scale
    distribution = stats.norm if event.kind == "gaussian" else stats.laplace
    return np.asarray(distribution.cdf(noise))


def winners(event: Answered, rng: np.random.Generator) -> FloatArray:
    """The winners of a selection as numbers that should be uniform on (0, 1).

    In each round (0, 1) is divided among the remaining coordinates in proportion to their probabilities, the largest
    score first; the number is a random point of the winner's part. It is uniform if the probabilities are right, and
    too small if there is too little noise.
    """
    weights = np.exp(event.statistic - event.statistic.max())
    out = []
    for winner in np.asarray(event.answer, dtype=int):
        above = weights[event.statistic > event.statistic[winner]].sum()
        tied = weights[event.statistic == event.statistic[winner]].sum()
        out.append((above + rng.random() * tied) / weights.sum())
        weights[winner] = 0.0
    return np.array(out)


def noise_faults(tapes: Sequence[Tape]) -> Iterator[str]:
    """The faults of the noise in recorded fits.

    The probability of a false alarm is at most 4·10⁻⁶. (Two draws are equal with probability about 2⁻⁴⁰, since the
    samplers' grid is far finer than the scale.)

    >>> from dpem import DPStandardScaler
    >>> from dpem.audit.tape import record
    >>> scaler = DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(-1, 1))
    >>> list(noise_faults([record(scaler, np.zeros((50, 20))) for _ in range(5)]))
    []
    """
    rng = np.random.default_rng(0)
    fits = [[standardised(event) for event in tape.answers if event.kind != "top_k"] for tape in tapes]
    draws = np.array([u for fit in fits for part in fit for u in part])
    chosen = np.array([u for tape in tapes for e in tape.answers if e.kind == "top_k" for u in winners(e, rng)])
    for what, sample in (("noise", draws), ("noise of selections", chosen)):
        if len(sample) and (p := float(stats.kstest(sample, "uniform").pvalue)) < FALSE_ALARM:
            yield f"the {what} does not have its distribution (p = {p:.1g})"
    if len(np.unique(draws)) < len(draws):
        yield "some noise was used twice"
    pairs = [pair for fit in fits for pair in _successive(fit)]
    if len(pairs) > 3:
        first, second = (stats.norm.ppf(np.clip(side, 1e-12, 1 - 1e-12)) for side in np.array(pairs).T)
        correlation = float(np.mean(first * second)) * math.sqrt(len(pairs))
        if abs(correlation) > stats.norm.isf(FALSE_ALARM / 2) + 1:  # a sum of products has slightly longer tails
            yield f"successive answers of a fit have correlated noise ({correlation / math.sqrt(len(pairs)):.2f})"


def _successive(fit: Sequence[FloatArray]) -> Iterator[tuple[float, float]]:
    """Pairs of the noise of each answer and of the next one of the same length, entry by entry."""
    for one, two in pairwise(fit):
        if one.shape == two.shape:
            yield from zip(one, two, strict=True)
