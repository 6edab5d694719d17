"""The mixture of two linear regressions as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem.paper.estimators.base import PrivateEM
from dpem.paper.gradient import IntArray
from dpem.paper.models import SymmetricRegression
from dpem.query import FloatArray


class DPSymmetricRegression(PrivateEM):
    """Two opposite linear regressions mixed in unknown proportion-half, y = ±⟨x, β⟩ + e; β fitted under differential
    privacy.

    ``predict(X)`` gives ⟨x, β⟩, the mean response of component 1; component 0 has the opposite one, and the mixture's
    overall mean is 0. Which of the two a record belongs to is answered by ``predict_proba(X, y)``, which needs its
    response. Columns should be centred with unit variance.

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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit β to the rows of X and their responses; a source brings its own, and no y is given."""
        return self._fit(X, y)

    def predict(self, X: Any) -> FloatArray:
        """⟨x, β⟩: the mean response of each row if it belongs to component 1 (the opposite if to component 0)."""
        check_is_fitted(self)
        return self._each(lambda rows: np.asarray(rows @ self.coef_), X)

    def predict_proba(self, X: Any, y: Any = None) -> FloatArray:
        """Probability of components 0 and 1 for each row, given its response; a half each without one."""
        if y is not None:
            return self.responsibilities(X, y)
        check_is_fitted(self)
        return np.full((len(self.predict(X)), 2), 0.5)

    def responsibilities(self, X: Any, y: Any) -> FloatArray:
        """The E-step: P(component | row, response), one column per component."""
        check_is_fitted(self)
        model = SymmetricRegression(self.sigma_)
        p = self._each(lambda rows, y: model.posterior(self.coef_, rows, y), X, y)
        return np.column_stack([1 - p, p])

    def score_samples(self, X: Any, y: Any) -> FloatArray:
        """Log density of each response given its row."""
        check_is_fitted(self)
        model = SymmetricRegression(self.sigma_)
        return self._each(lambda rows, y: model.log_likelihood(self.coef_, rows, y), X, y)

    def score(self, X: Any, y: Any) -> float:
        """Mean log density of the responses."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(self, X: Any, random_state: int | None = None) -> tuple[FloatArray, IntArray]:
        """New responses for the rows of X from the fitted mixture, and their components."""
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        return self._model().sample(self.coef_, self._rows(X), rng)  # type: ignore[arg-type, return-value]
