"""The estimator of the Gaussian mixture with centres ±β."""

from __future__ import annotations

import numpy as np

from dpem.paper.estimators.base import TwoComponents
from dpem.paper.queries import IntArray
from dpem.query import FloatArray


class DPSymmetricMixture(TwoComponents):
    """A mixture of two Gaussian components centred at +β and −β, y = z·β + e; β fitted under differential privacy.

    ``predict`` returns the component of each row: 1 for the one at +β, 0 for the one at −β. Which of the two is called
    +β is arbitrary, as in any mixture. The columns should be centred, with noise of standard deviation ``sigma``.

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

    @property
    def means_(self) -> FloatArray:
        """The centres of components 0 and 1: −β and +β."""
        return np.stack([-self.coef_, self.coef_])

    def predict(self, X: object) -> IntArray:
        """The more probable component of each row: 1 for +β, 0 for −β."""
        return (self.predict_proba(X)[:, 1] > 0.5).astype(np.intp)

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[FloatArray, IntArray]:
        """New rows from the fitted mixture, and their components."""
        return self._model().sample(self.coef_, n_samples, np.random.default_rng(random_state))

    def _entry_scale(self, sigma: float) -> float:
        return sigma
