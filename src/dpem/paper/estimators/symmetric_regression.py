"""The estimator of the mixture of two opposite linear regressions."""

from __future__ import annotations

import numpy as np

from dpem.paper.estimators.base import TwoComponents
from dpem.paper.queries import IntArray
from dpem.query import FloatArray


class DPSymmetricRegression(TwoComponents):
    """An equal mixture of two opposite linear regressions, y = ±⟨x, β⟩ + e; β fitted under differential privacy.

    ``predict(X)`` returns ⟨x, β⟩, the mean response of component 1; that of component 0 is the opposite, and the
    mixture's mean is 0. ``predict_proba(X, y)`` returns the probability of each component, given the response. Columns
    should be centred with unit variance.

    A private start needs many rows (about 20,000 at d = 1000, ε = 0.6); below that, ``fit`` requires ``start``.

    {parameters}

    Examples
    --------
    >>> from dpem.paper import DPSymmetricRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((4000, 6))
    >>> y = rng.choice([-1, 1], size=4000) * (X[:, 0] - X[:, 1]) / 2**0.5 + 0.3 * rng.standard_normal(4000)
    >>> start = [0.5, -0.5, 0, 0, 0, 0]
    >>> model = DPSymmetricRegression(epsilon=1.0, delta=1e-5, sparsity=2, sigma=0.3, start=start).fit(X, y)
    >>> model.coef_.round(1)[:3]
    array([ 0.7, -0.7,  0. ])
    """

    _model_name = "symmetric-regression"
    _needs_y = True

    def predict(self, X: object) -> FloatArray:
        """⟨x, β⟩: the mean response of each row if it belongs to component 1 (the opposite if to component 0)."""
        beta = self.coef_
        return self._by_pieces(lambda rows: np.asarray(rows @ beta), X)

    def sample(self, X: object, random_state: int | None = None) -> tuple[FloatArray, IntArray]:
        """New responses for the rows of X from the fitted mixture, and their components."""
        responses, components = self._sample_responses(X, np.random.default_rng(random_state))
        return responses, components
