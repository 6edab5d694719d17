"""How much likelier an outcome is on one table than on its neighbour: the best score an adversary can have.

The noise's law is public, so whoever knows both tables can compute the ratio of the probabilities of what was
released. By Neyman and Pearson's lemma no other function of the releases distinguishes the tables more often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpem.audit.tape import Answered, Tape, Totalled
from dpem.query import FloatArray


def gaussian_ratio(answer: FloatArray, first: FloatArray, second: FloatArray, scale: float) -> float:
    """log of the density of the answer around ``first`` over that around ``second``, for N(0, scale²) noise.

    >>> gaussian_ratio(np.array([0.0]), np.array([0.0]), np.array([2.0]), 1.0)
    2.0
    """
    away, near = answer - second, answer - first
    return float(away @ away - near @ near) / (2 * scale**2)


def plackett_luce(scores: FloatArray, chosen: NDArray[np.intp]) -> float:
    """log P(these places, in this order, are the first of score + Gumbel(1)).

    *Lemma.* It is Σ_r (score of the r-th − log Σ exp(scores left at round r)). *Proof.* By the Gumbel-max property
    the largest is j with probability proportional to exp(score_j), and given it the others are again the largest of
    what is left (Plackett and Luce's law). ∎

    >>> float(np.exp(plackett_luce(np.zeros(4), np.array([2, 0]))).round(12)) == round(1 / 4 / 3, 12)
    True
    """
    weights = np.exp(scores - np.max(scores))
    picked = weights[chosen]
    never = weights.copy()
    never[chosen] = 0.0
    left = never.sum() + np.cumsum(picked[::-1])[::-1]
    return float(np.sum(np.log(picked) - np.log(left)))


def transcript_ratio(first: Tape, second: Tape) -> float:
    """log-likelihood ratio of everything that was released in a fit: the tape of the fit to one table, and that of the
    same answers replayed on the other; positive if the outcome is likelier on the first tape's table.

    *Lemma.* It is the sum over the answers of the ratio for each, given those before. *Proof.* The chain rule; given
    the earlier answers, the statistic and the scale of the next are what the replay computes. ∎ Of peeling with Laplace
    noise the sampler's answers are not released, so a fit that peels has no such ratio.
    """
    total = 0.0
    for one, two in zip(first.answers, second.answers, strict=True):
        if one.kind == "gaussian":
            total += gaussian_ratio(one.answer, one.statistic, two.statistic, one.scale)
        elif one.kind == "top_k":
            total += plackett_luce(one.statistic, one.answer) - plackett_luce(two.statistic, one.answer)
        else:
            raise ValueError(f"the answers of a {one.kind} sampler are not released one by one.")
    return total


def gaussian_transcript_ratio(tape: Tape) -> float:
    """The same for a fit with Gaussian noise alone, from one tape that has the totals of the other table beside its
    own: given the answers, the queries are the same on both, so no replay is needed.
    """
    total, change = 0.0, np.zeros(0)
    for event in tape.events:
        if isinstance(event, Totalled):
            change = np.asarray(event.change)
        elif isinstance(event, Answered):
            total += gaussian_ratio(event.answer, event.statistic, event.statistic + change, event.scale)
    return total
