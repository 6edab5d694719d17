"""Mixtures fitted to public surrogate rows that agree with every noisy answer.

A private fit can afford few queries, EM needs a hundred steps. So the answers reweight invented rows
(:class:`Surrogate`), ordinary EM runs on these to convergence (:func:`em`, :func:`best_of`), and the next query asks
the real rows for the score there (:class:`ScoreQuery`). All of it but the queries is post-processing.
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
