"""The sparse two-component Gaussian mixture as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem.paper.estimators.base import PrivateEM
from dpem.paper.gradient import IntArray
from dpem.paper.models import SymmetricMixture
from dpem.query import FloatArray


class DPSymmetricMixture(PrivateEM):
    """Rows from two Gaussian clouds centred at +β and −β, y = z·β + e; β fitted under differential privacy.

    ``predict`` gives the component of each row: 1 for the cloud at +β, 0 for the one at −β (which of the two is
    called +β is arbitrary, as in any mixture). The columns should be centred, with noise of standard deviation
    ``sigma``.

    {parameters}

    Examples
    --------
    >>> from dpem.paper import DPSymmetricMixture
    >>> rng = np.random.default_rng(0)
    >>> beta = np.array([0.8, 0.6] + [0.0] * 18)
    >>> Y = rng.choice([-1, 1], size=(3000, 1)) * beta + 0.5 * rng.standard_normal((3000, 20))
    >>> model = DPSymmetricMixture(epsilon=1.0, delta=1e-5, sparsity=2, sigma=0.5).fit(Y)
    >>> model.support_
    array([0, 1])
    >>> bool(min(np.linalg.norm(model.coef_ - beta), np.linalg.norm(model.coef_ + beta)) < 0.2)
    True
    """

    _model_name = "symmetric-mixture"
    _needs_y = False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit β to the rows of X. ``y`` is ignored."""
        return self._fit(X, None)

    @property
    def means_(self) -> FloatArray:
        """The centres of components 0 and 1: −β and +β."""
        check_is_fitted(self)
        return np.stack([-self.coef_, self.coef_])

    def predict(self, X: Any) -> IntArray:
        """The more probable component of each row: 1 for +β, 0 for −β."""
        return (self.responsibilities(X)[:, 1] > 0.5).astype(np.intp)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of components 0 and 1 for each row."""
        return self.responsibilities(X)

    def responsibilities(self, X: Any) -> FloatArray:
        """The E-step: P(component | row), one column per component."""
        check_is_fitted(self)
        model = SymmetricMixture(self.sigma_)
        p = self._each(lambda rows: model.posterior(self.coef_, rows), X)
        return np.column_stack([1 - p, p])

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each row under the fitted mixture."""
        check_is_fitted(self)
        model = SymmetricMixture(self.sigma_)
        return self._each(lambda rows: model.log_likelihood(self.coef_, rows), X)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[FloatArray, IntArray]:
        """New rows from the fitted mixture, and their components."""
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        return self._model().sample(self.coef_, n_samples, rng)  # type: ignore[arg-type, return-value]

    def _entry_scale(self, sigma: float) -> float:
        return sigma
