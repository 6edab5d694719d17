"""The non-private reference (ε = ∞): maximum likelihood by Newton steps, as ``glm`` in R finds it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpem.models._glm.combine import Posterior, placed
from dpem.models._glm.queries import Likelihood
from dpem.privacy import Curator
from dpem.queries.narrow import unpacked
from dpem.query import FloatArray

if TYPE_CHECKING:
    from dpem.models._glm.steps import GlmState

#: Newton steps at most, and the change of the mean log-likelihood below which they have converged.
MOST_STEPS, CONVERGED = 60, 1e-14


def maximum_likelihood(curator: Curator, model: Any, state: GlmState) -> GlmState:
    """The state with the maximum of the likelihood over the complete rows."""
    k, n = len(model.free), curator.effective_rows
    now = state.current()
    assert now.prior is not None
    assert now.surrogate is not None
    coef = now.prior.mean.copy()

    def measured(values: FloatArray) -> FloatArray:
        predictor = model.predictor(placed(values, model.free, model.offset))
        query = Likelihood(model.schema, model.family, predictor, tuple(int(j) - 1 for j in model.free[1:]))
        return curator.measure(query, math.inf)

    found, converged = measured(coef), False
    for _ in range(MOST_STEPS):
        information = unpacked(found[3 + k : 3 + k + k * (k + 1) // 2], k)
        step, length = np.linalg.lstsq(information, found[3 : 3 + k], rcond=1e-12)[0], 1.0
        new = measured(coef + step)
        while not new[2] >= found[2] - 1e-15 and length > 1e-6:
            length /= 2
            new = measured(coef + length * step)
        gained, coef, found = float(new[2] - found[2]), coef + length * step, new
        if abs(gained) < CONVERGED * max(abs(float(found[2])), 1.0):
            converged = True
            break
    end = 3 + k + k * (k + 1) // 2
    sampling = np.linalg.pinv(unpacked(found[3 + k : end], k)) / n
    if state.weights is not None:  # the sandwich
        sampling = sampling @ unpacked(found[end:], k) @ sampling * n / state.weights.ratio
    nothing = np.zeros((k, k))
    rows = replace(now.surrogate, complete=float(found[0]))
    posterior = Posterior(coef, sampling, nothing, np.zeros(k))
    now = replace(now, surrogate=rows, mean=float(found[1] / max(found[0], 1e-12)), posterior=posterior)
    theta = replace(model.finished(now, posterior, n), converged=converged)
    return replace(state, theta=theta, progress=now)
