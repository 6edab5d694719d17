"""The mixture of two linear regressions as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpem.paper.estimators.base import PrivateEM
from dpem.paper.models import SymmetricRegression
from dpem.query import FloatArray
from dpem.questions.gradient import IntArray


class DPSymmetricRegression(PrivateEM):
    """Two opposite linear regressions mixed in unknown proportion-half, y = ±⟨x, β⟩ + e; β fitted under differential
    privacy.

    ``predict(X)`` gives ⟨x, β⟩, the mean response of component 1; component 0 has the opposite one, and the mixture's
    overall mean is 0. Which of the two a record belongs to is answered by ``predict_proba(X, y)``, which needs its
    response. Columns should be centred with unit variance.

    A private start needs many rows (about 20,000 at d = 1000, ε = 0.6); below that, ``fit`` asks for ``start``.

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
