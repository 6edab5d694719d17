"""The sparse two-component Gaussian mixture as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem.paper.estimators.base import PrivateEM
from dpem.paper.models import SymmetricMixture
from dpem.query import FloatArray
from dpem.questions.gradient import IntArray


class DPSymmetricMixture(PrivateEM):
    """Rows from two Gaussian clouds centred at +β and −β, y = z·β + e; β fitted under differential privacy.

    ``predict`` gives the component of each row: 1 for the cloud at +β, 0 for the one at −β (which of the two is
    called +β is arbitrary, as in any mixture). The columns should be centred, with noise of standard deviation
    ``sigma``.

    Parameters
    ----------
    epsilon, delta : float
        The privacy guarantee for replacing one row, or all rows of one person (``rows_per_person``). Both must be
        given. ``epsilon=float("inf")`` is the non-private reference.
    sparsity : int, "auto" or None
        Coefficients that may be non-zero; None for the low-dimensional algorithm, which releases all of them; "auto"
        fits ``max_sparsity`` of them and drops those that the known noise level explains.
    max_sparsity : int or None
        With ``sparsity="auto"``: the most coefficients there may be.
    sigma : float or None
        Standard deviation of the noise in the model: what is publicly known of it. None, the default, spends a
        twentieth of the price on estimating it (see ``sigma_``).
    signal : float
        Assumed length of the coefficient vector; settings are chosen for it. A wrong value costs accuracy, never
        privacy.
    method : {"tight", "paper"}
        "tight" chooses every setting by :func:`dpem.plan`; "paper" runs the published algorithm with its own settings.
    start : array of shape (n_features,), "equal" or None
        Where EM begins. It must not be computed from these data without paying. "equal" is signal/√d everywhere.
    n_iter, step_size, clip : int, float, float, or None
        Refining steps (batches, for "paper"), the step η and the clip T of an entry; None leaves them to the plan.
    rows_per_person : int
        The most rows that one person has. All of them are protected together, and noise grows in proportion. It must be
        publicly known, or made true beforehand; whoever has more rows is protected less.
    budget : Budget, Ledger or None
        Debited with (epsilon, delta) before any question is put to the data.
    random_state : int or None
        None draws private noise. A seed makes the noise repeatable for simulations, and **not private**; it goes with
        no budget.

    Attributes
    ----------
    coef_, support_ : arrays
        The coefficients, and the columns they may be non-zero on.
    sigma_ : float
        The noise level used: given, or released.
    plan_, releases_, guarantee_ : Plan, tuple of Release, Guarantee
        The settings, what was asked of the data and its price, and the statement to publish with the model.
    scaler_ : str or None
        Of a loaded model: the fingerprint of the scaler that rows must pass first, if it was saved with one.
    n_iter_, n_features_in_, feature_names_in_
        EM steps taken, and scikit-learn's usual two.

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
