"""The estimator of linear regression with missing covariates."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Tags

from dpem.fitting.results import Regressor
from dpem.paper.estimators.base import PrivateEM
from dpem.query import FloatArray


class DPMissingRegression(Regressor, PrivateEM):
    """Linear regression, y = ⟨x, β⟩ + e, with NaN where a covariate is missing at random; β fitted under differential
    privacy.

    ``predict(X)`` returns E[y | observed entries] = Σ over the observed entries of x_j·β_j; a missing entry counts as
    its mean, 0. Columns should be centred with unit variance.

    {parameters}

    Examples
    --------
    >>> from dpem.paper import DPMissingRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((4000, 6))
    >>> y = (X[:, 0] - X[:, 1]) / 2**0.5 + 0.3 * rng.standard_normal(4000)
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = DPMissingRegression(epsilon=1.0, delta=1e-5, sparsity=2, sigma=0.3).fit(X, y)
    >>> model.coef_.round(1)[:3]
    array([ 0.7, -0.7,  0. ])
    """

    _model_name = "missing-regression"
    _needs_y = True
    _missing = True

    def predict(self, X: object) -> FloatArray:
        """E[y | observed entries]: missing entries count as their mean, 0."""
        model = self._model()
        return self._by_pieces(lambda rows: model.predictive(self.coef_, rows)[0], X)

    def impute(self, X: object, y: object) -> FloatArray:
        """The E-step: rows with missing entries replaced by their means given the observed ones and the response."""
        model = self._model()

        def completed(rows: FloatArray, y: FloatArray) -> FloatArray:
            fitted, missing_variance = model.predictive(self.coef_, rows)
            gain = (y - fitted) / (model.sigma**2 + missing_variance)
            return np.where(np.isnan(rows), gain[:, None] * self.coef_, rows)

        return self._by_pieces(completed, X, y)

    def sample(self, X: object, random_state: int | None = None) -> FloatArray:
        """New responses for the rows of X from the fitted model."""
        return np.asarray(self._sample_responses(X, np.random.default_rng(random_state)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
