"""Audits of whole fits on a small table D and a neighbour D′ with another row in one position.

This row, the *canary*, is far beyond the clips: in every step its contribution is at one end of the clip on D and at
the other end on D′, whatever was released before. There are two adversaries, who know both tables. One sees *every
release* and scores a fit by the exact likelihood ratio of all answers, from a replay on the other table. The other sees
the *model only* and scores it by the projection of the coefficients on the canary's direction.

The other rows are constant, since a selection is easiest to detect among equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.audit.general import Fit
from dpem.audit.neighbours import Rows, Table
from dpem.fitting.scaler import DPStandardScaler
from dpem.paper import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
from dpem.query import FloatArray

MODELS: dict[str, type[BaseEstimator]] = {
    "symmetric-mixture": DPSymmetricMixture,
    "symmetric-regression": DPSymmetricRegression,
    "missing-regression": DPMissingRegression,
    "scaler": DPStandardScaler,
}
METHODS = ("improved", "published")
SIGMA = 0.5
#: A coordinate beyond every clip.
FAR = 1e9


@dataclass(frozen=True)
class CanaryFit(Fit):
    """An audited fit with a canary. The second adversary projects ``attribute`` on ``direction``. If the fit ``peels``,
    its answers are not released one by one, so that there is the second adversary only.
    """

    direction: FloatArray = field(repr=False)
    attribute: str = "coef_"
    peels: bool = False

    @property
    def adversaries(self) -> tuple[str, ...]:
        return ("model only",) if self.peels else ("every release", "model only")

    def score(self, neighbour: bool) -> tuple[float, ...]:
        tape = self.run(neighbour)
        seen = float(getattr(tape.model, self.attribute) @ self.direction)
        return (seen,) if self.peels else (self.ratio(tape, neighbour), seen)


def case(
    model: str,
    *,
    epsilon: float,
    delta: float,
    rows: int = 50,
    columns: int = 4,
    sparsity: int | None = None,
    method: str = "improved",
) -> CanaryFit:
    """The audit of one estimator on the tables that its releases distinguish best.

    >>> case("symmetric-regression", epsilon=1.0, delta=1e-5, sparsity=2).name
    'symmetric-regression, 2 of 4'
    """
    model = arguments.one_of("model", model, tuple(MODELS))
    method = arguments.one_of("method", method, METHODS)
    rows, columns = arguments.count("rows", rows), arguments.count("columns", columns)
    sparsity = arguments.sparsity(sparsity, None, columns)[0]
    if columns < 2:
        raise ArgumentError("columns", f"must be at least 2, for two orthogonal directions, got {columns}.")
    if model == "scaler":
        return _scaler(epsilon, delta, rows, columns)
    sparse = sparsity is not None and sparsity < columns
    start = np.eye(1, columns)[0]
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "sigma": SIGMA,
        "sparsity": sparsity,
        "method": method,
        "start": None if MODELS[model]._missing and method == "improved" else start,
    }
    if method == "published":  # one batch, so that the canary is in it and the model is what it released
        settings["n_iter"] = 1
    tables, direction = _TABLES[model](rows, columns, method)
    parts = (model, "paper's method" if method == "published" else "", f"{sparsity} of {columns}" if sparse else "")
    name = ", ".join(part for part in parts if part)
    estimator = MODELS[model](**settings)
    return CanaryFit(name, estimator, tables, direction, peels=sparse and method == "published")


def _pattern(d: int) -> FloatArray:
    """Signs that alternate."""
    return np.resize([1.0, -1.0], d)


def _tables(rows: Rows, y: FloatArray | None, canaries: tuple[tuple[Rows, float], ...]) -> tuple[Table, Table]:
    made = []
    for name, (row, response) in zip(("D", "its neighbour"), canaries, strict=True):
        X, of = rows.copy(), None if y is None else y.copy()
        X[0] = row
        if of is not None:
            of[0] = response
        made.append(Table(name, X, of))
    return made[0], made[1]


def _mixture(n: int, d: int, method: str) -> tuple[tuple[Table, Table], FloatArray]:
    """Both canaries have the same part along the start, which fixes their component, and opposite parts orthogonal to
    it.

    A contribution is the row or its negative, whichever points along β, so opposite rows would contribute the same. The
    orthogonal part is four times as long, so that it fills most of the clip; noise that turns β by less than a quarter
    does not change the component.
    """
    across = np.append(0.0, _pattern(d - 1))
    along = np.eye(1, d)[0] * np.linalg.norm(across) / 4
    others = np.full((n, d), SIGMA / 8)
    others[:, 0] = 1.0
    return _tables(others, None, ((FAR * (along + across), 0.0), (FAR * (along - across), 0.0))), across


def _regressions(n: int, d: int, method: str) -> tuple[tuple[Table, Table], FloatArray]:
    """One canary has a fitted value far beyond its response, the other a response far beyond its fitted value.

    The weight of a row is ±y − ⟨β, x⟩ with the sign of ⟨β, x⟩, so the first contributes −x and the second +x, times
    that sign, for every β. The paper truncates response and fitted value separately at T, where they would cancel: so
    for its method the second row's fitted value is close to zero.
    """
    u = _pattern(d)
    answered = 10 * u
    if method == "published":
        answered[0] = 1e-3
    return _tables(np.ones((n, d)), np.full(n, 10.0), ((1e4 * u, 0.0), (answered, FAR))), u


def _missing(n: int, d: int, method: str) -> tuple[tuple[Table, Table], FloatArray]:
    """The same row with responses far above and far below, so that the residual and the contribution change sign. The
    paper truncates response and fitted value separately at T, so for its method both change sign.
    """
    u = _pattern(d)
    above, below = 10 * u, 10 * u
    if method == "published":
        above[0], below[0] = -FAR, FAR
    return _tables(np.ones((n, d)), np.full(n, 10.0), ((above, FAR), (below, -FAR))), u


_TABLES = {"symmetric-mixture": _mixture, "symmetric-regression": _regressions, "missing-regression": _missing}


def _scaler(epsilon: float, delta: float, n: int, d: int) -> CanaryFit:
    """All entries at the lower bound, or all at the upper: the first moments change by their whole sensitivity."""
    tables = _tables(np.zeros((n, d)), None, ((np.full(d, -1.0), 0.0), (np.full(d, 1.0), 0.0)))
    scaler = DPStandardScaler(epsilon=epsilon, delta=delta, bounds=(-1.0, 1.0))
    return CanaryFit("scaler", scaler, tables, np.ones(d), attribute="mean_")
