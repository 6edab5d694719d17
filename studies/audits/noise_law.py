"""Whether the noise on tapes is the noise that was paid for: its size, its shape, and that no draw is used twice.

Answer minus statistic is the noise itself, and an audit may look at it. Gaussian and Laplace noise is brought to a
uniform variable by its distribution function. Of a selection only the winners are seen, but their law is known: each
is drawn from those left with probability proportional to exp(score). A Kolmogorov–Smirnov test then sees a wrong scale
or a wrong law, correlations see noise that is reused within a fit, and equal values see noise that is repeated between
fits.
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
    law = stats.norm if event.kind == "gaussian" else stats.laplace
    return np.asarray(law.cdf(noise))


def winners(event: Answered, rng: np.random.Generator) -> FloatArray:
    """The winners of a selection as numbers that should be uniform on (0, 1).

    In each round the coordinates left are put in the order of their scores, best first, on an interval in parts as long
    as their probabilities; the number is a random point of the winner's part. So it is uniform if the probabilities
    are right, and too small if there is too little noise.
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
    """What is wrong with the noise of fits recorded one after another, if anything.

    False alarms: at most 4·10⁻⁶ in all. (Two equal draws have probability about 2⁻⁴⁰ for each pair: the samplers' grid
    is far finer than the scale.)

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
            yield f"the {what} does not follow its law (p = {p:.1g})"
    if len(np.unique(draws)) < len(draws):
        yield "some noise was used twice"
    pairs = [pair for fit in fits for pair in _successive(fit)]
    if len(pairs) > 3:
        first, second = (stats.norm.ppf(np.clip(side, 1e-12, 1 - 1e-12)) for side in np.array(pairs).T)
        correlation = float(np.mean(first * second)) * math.sqrt(len(pairs))
        if abs(correlation) > stats.norm.isf(FALSE_ALARM / 2) + 1:  # a sum of products has slightly longer tails
            yield f"successive answers of a fit have correlated noise ({correlation / math.sqrt(len(pairs)):.2f})"


def _successive(fit: Sequence[FloatArray]) -> Iterator[tuple[float, float]]:
    """Entry by entry, the noise of each answer beside that of the next one of the same length."""
    for one, two in pairwise(fit):
        if one.shape == two.shape:
            yield from zip(one, two, strict=True)
