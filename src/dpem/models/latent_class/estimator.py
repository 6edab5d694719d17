"""Latent class analysis under differential privacy: the estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.diagnostics import Diagnostic
from dpem.fitting.estimator import PrivateEstimator
from dpem.fitting.sequence import keeps_arguments
from dpem.fitting.step import State
from dpem.fitting.summary import Profile
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.latent_class.errors import Parameters
from dpem.models.latent_class.family import TUNING
from dpem.models.latent_class.planning import LatentClass, most_classes
from dpem.models.latent_class.queries import Items
from dpem.query import FloatArray
from dpem.tables.schema import Schema


class DPLatentClass(PrivateEstimator):
    """Latent class analysis under differential privacy: groups of people with similar answers to categorical items.

    Within a class the answers to different items are independent. Noisy counts of answers and of pairs of answers give
    first classes; noisy scores of the likelihood, clipped, improve them. No bounds are needed. An answer that is not a
    declared level counts as missing.

    Parameters
    ----------
    n_classes : int or "auto"
        The number of classes, at least 2; "auto" estimates it (up to 6) from the answers of the start, at no further
        price.
    epsilon, delta : float
        The privacy guarantee of the fit; ``epsilon=inf`` is the non-private reference.
    levels : dict
        The possible answers to each item, by the column's name: public, never computed from the rows.
        Columns of an array are called x0, x1, …
    check : bool
        Whether 5 % of the price goes to a check against independent answers.
    {shared}

    Attributes
    ----------
    n_classes_ : int
        The number of classes.
    n_classes_scores_ : array
        With "auto": the criterion for 1, 2, … classes. The number with the least is taken; 1 means no sign of classes.
    weights_ : array of shape (n_classes,)
        The share of each class, the largest first; class 1 is the label 0 of :meth:`predict`.
    probabilities_ : dict of arrays of shape (n_classes, levels)
        For each item the probability of each level in each class.
    fit_check_, plan_, guarantee_, releases_ :
        The comparison with independent answers, the plan, the certificate, and the list of releases.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.random(20_000) < 0.3
    >>> X = (rng.random((20_000, 6)) < np.where(kind, 0.9, 0.2)[:, None]).astype(float)
    >>> model = DPLatentClass(2, epsilon=1.0, delta=1e-6, levels={f"x{j}": [0, 1] for j in range(6)}).fit(X)
    >>> model.weights_.round(1).tolist()
    [0.7, 0.3]
    >>> model.probabilities_["x0"].round(1).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    >>> bool(np.mean(model.predict(X) == kind) > 0.95)
    True
    """

    _every_level = True

    @keeps_arguments
    def __init__(
        self,
        n_classes: int | str = 2,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        levels: Any = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Any = None,
        check: bool = True,
        random_state: Any = None,
    ) -> None: ...

    def _model(self, schema: Schema) -> LatentClass:
        K = arguments.count_or_auto("n_classes", self.n_classes)
        if K == 1:
            raise ArgumentError("n_classes", "must be at least 2: one class is what the fit check compares with.")
        items = Items(tuple(int(count) for count in np.unique(schema.column, return_counts=True)[1]))
        most = most_classes(items)
        if most < 2:
            raise ArgumentError(
                "X", "must have at least 3 columns: classes show in how answers to several items go together."
            )
        if most < K:
            raise ArgumentError("n_classes", f"must be at most {most} with so few answers, got {K}.")
        return LatentClass(schema, K, items)

    def _set_fitted(self, state: State, *known: Any) -> None:
        super()._set_fitted(replace(state, theta=state.theta.largest_first()), *known)
        column, p = self.schema_.column, self.theta_.probabilities
        self.probabilities_ = {self.columns_[j]: p[:, np.flatnonzero(column == j)] for j in np.unique(column)}

    def _attributes(self, theta: Parameters, schema: Schema) -> dict[str, Any]:
        return {"weights_": theta.weights, "n_classes_": len(theta.weights), "n_classes_scores_": theta.path}

    def _diagnostics(self) -> list[Diagnostic]:
        theta = self.theta_
        failed = self.fit_check_ is not None and not self.fit_check_.better  # the fit check reports it
        if failed or theta.moved <= TUNING.unstable:
            return []
        words = (
            f"The classes are not stable: a second private fit may put about {100 * theta.moved:.0f} % of the rows "
            "into another class."
        )
        return [Diagnostic("unstable-classes", "warning", words, "Use fewer classes, more rows or a larger epsilon.")]

    def _uncertainty(self) -> Uncertainty:
        theta, K = self.theta_, len(self.theta_.weights)
        names = [f"class {k + 1}: share" for k in range(K)]
        names += [f"class {k + 1}: {name}" for k in range(K) for name in self.schema_.names]
        estimate, sampling, privacy = (
            np.concatenate([w, p.ravel()])
            for w, p in zip(
                (theta.weights, *theta.weights_errors), (theta.probabilities, *theta.probabilities_errors), strict=True
            )
        )
        note = "information in the surrogate rows, and the noise of the score queries"
        return Uncertainty.of(names, estimate, sampling, privacy, note, ["share"] * len(names))

    def _picture_scale(self) -> tuple[FloatArray, str]:
        return np.ones(len(self._errors.names)), "shares and probabilities"

    def _profile(self) -> Profile:
        theta, names = self.theta_, self.schema_.names
        labels = tuple(f"class {k + 1}" for k in range(len(theta.weights)))
        ends = np.zeros(len(names)), np.ones(len(names))
        words = "The probability of each answer in each class; class 1 is the largest."
        return Profile(labels, theta.weights, names, theta.probabilities, None, *ends, True, words)

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, given a row's answers."""
        return np.asarray(self._each(self._model(self.schema_).membership, X))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most likely class of each row: 0, 1, …"""
        return np.argmax(self.predict_proba(X), axis=1)

    def score_samples(self, X: Any) -> FloatArray:
        """The log-likelihood of each row's answers; missing values are left out."""
        return np.asarray(self._each(self._model(self.schema_).log_density, X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Rows without missing values, drawn from the fitted classes, and the class of each."""
        check_is_fitted(self)
        n, weights = arguments.count("n_samples", n_samples), self.weights_
        rng = np.random.default_rng(random_state)
        group = np.sort(rng.choice(len(weights), size=n, p=weights))
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        columns = []
        for name, p in zip(names, self.probabilities_.values(), strict=True):
            levels = self.levels_[name]
            place = np.sum(rng.random((len(group), 1)) > np.cumsum(p, axis=1)[group, :-1], axis=1)
            columns.append(np.array(levels.labels if levels.texts else levels.values)[place])
        return np.column_stack(columns), group
