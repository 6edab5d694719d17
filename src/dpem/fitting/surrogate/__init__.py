"""Mixtures fitted to public surrogate rows that agree with every noisy answer.

A private fit can afford few queries, but EM needs a hundred steps. So each round does three things: it asks the real
rows for the score at the present parameters (:class:`ScoreQuery`), reweights simulated rows so that they agree with
this answer and all before (:class:`Surrogate`), and runs EM on the weighted rows to convergence (:func:`em`,
:func:`best_of`). Only the queries cost privacy; the rest is post-processing.
"""

from dpem.fitting.surrogate.em import Converged, Family, best_of, em, exact
from dpem.fitting.surrogate.errors import error_roots, error_units, share_apart, share_moved
from dpem.fitting.surrogate.fit import ScoreStep, SurrogateFit, SurrogateModel
from dpem.fitting.surrogate.rows import Answer, Block, Surrogate, combined_noise
from dpem.fitting.surrogate.scores import NOT_CLIPPED, ScoreQuery, information, score_query, whitener

__all__ = [
    "NOT_CLIPPED",
    "Answer",
    "Block",
    "Converged",
    "Family",
    "ScoreQuery",
    "ScoreStep",
    "Surrogate",
    "SurrogateFit",
    "SurrogateModel",
    "best_of",
    "combined_noise",
    "em",
    "error_roots",
    "error_units",
    "exact",
    "information",
    "score_query",
    "share_apart",
    "share_moved",
    "whitener",
]
