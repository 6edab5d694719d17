"""Queries of the paper's models that tests of engines share."""

import numpy as np

from dpem.paper.models import MissingRegression, SymmetricMixture, SymmetricRegression
from dpem.paper.queries import Clip

SIGMA, T, C, BRACKET, RADIUS = 0.8, 1.5, 0.75, 2.0, 1.25  # exact in float32, so that clip levels are the same
BETA = np.array([0.0, 0.7, 0.0, -0.4, 0.2, 0.0, 0.0])
SUPPORT = np.array([4, 1, 6, 3])

#: What is summed, by name: a query and whether its rows have missing entries and a response.
GMM, MR, MISSING = SymmetricMixture(SIGMA), SymmetricRegression(SIGMA), MissingRegression(SIGMA)
QUERIES = {
    "gmm gradient": (GMM.gradient(BETA, Clip(T)), False, False),
    "mr gradient": (MR.gradient(BETA, Clip(T, C)), False, True),
    "mr truncated": (MR.truncated(BETA, T), False, True),
    "missing gradient": (MISSING.gradient(BETA, Clip(T, C, BRACKET)), True, True),
    "missing truncated": (MISSING.truncated(BETA, T), True, True),
    "gmm on_support": (GMM.on_support(BETA, SUPPORT, RADIUS), False, False),
    "mr on_support": (MR.on_support(BETA, SUPPORT, RADIUS), False, True),
    "missing on_support": (MISSING.on_support(BETA, SUPPORT, RADIUS), True, True),
    "gmm screening": (GMM.screening(1.0, 2), False, False),
    "mr screening": (MR.screening(1.0, 2), False, True),
    "gmm moments": (GMM.moments(SUPPORT, RADIUS, 1.0), False, False),
    "mr moments": (MR.moments(SUPPORT, RADIUS, 1.0), False, True),
}
