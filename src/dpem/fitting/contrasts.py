"""Linear combinations of coefficients and their tests, as statsmodels writes them: post-processing, at no price."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri

from dpem._validation import ArgumentError, is_fraction
from dpem.fitting.uncertainty import pandas_of
from dpem.query import FloatArray


@dataclass(frozen=True)
class Contrasts:
    """Linear combinations of coefficients, each tested against a value."""

    names: tuple[str, ...]
    effect: FloatArray
    sd: FloatArray
    value: FloatArray | float = 0.0

    @property
    def statistic(self) -> FloatArray:
        return np.asarray((self.effect - self.value) / self.sd)

    @property
    def pvalue(self) -> FloatArray:
        """Two-sided, from the normal law."""
        return np.asarray(2 * ndtr(-np.abs(self.statistic)))

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """Lower and upper end of each combination's interval."""
        reach = float(ndtri(0.5 + is_fraction("level", level) / 2)) * self.sd
        return np.column_stack([self.effect - reach, self.effect + reach])

    def summary_frame(self, level: float = 0.95) -> Any:
        """A DataFrame with a row for each combination."""
        low, high = self.conf_int(level).T
        columns = {"coef": self.effect, "std err": self.sd, "z": self.statistic, "P>|z|": self.pvalue}
        return pandas_of({**columns, "lower": low, "upper": high}, self.names)

    def __str__(self) -> str:
        return str(self.summary_frame().round(4))


@dataclass(frozen=True)
class WaldTest:
    """A joint test of linear hypotheses: a chi square with ``df`` degrees of freedom under all of them."""

    statistic: float
    df: int
    pvalue: float

    @classmethod
    def of(cls, differences: FloatArray, covariance: FloatArray, df: int, rcond: float = 1e-12) -> WaldTest:
        """The test that differences with this covariance are all 0."""
        inverse = np.linalg.pinv(covariance, rcond=rcond, hermitian=True)
        statistic = float(differences @ inverse @ differences)
        return cls(statistic, df, float(chdtrc(df, statistic)))

    def __str__(self) -> str:
        return f"chi² = {self.statistic:.4g} with {self.df} degrees of freedom, p = {self.pvalue:.3g}"


def standard_errors(combinations: FloatArray, covariance: FloatArray) -> FloatArray:
    """The standard error of each linear combination of coefficients with this covariance."""
    variance = np.einsum("ij,jk,ik->i", combinations, covariance, combinations)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def hypotheses_about(names: Sequence[str], hypotheses: Any) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """The matrix and right side of linear hypotheses about named coefficients, and what each is called."""
    if isinstance(hypotheses, str):
        if hypotheses in names:
            return np.eye(len(names))[[names.index(hypotheses)]], np.zeros(1), (hypotheses,)
        levels = [j for j, name in enumerate(names) if _belongs(name, hypotheses)]
        if levels:
            return np.eye(len(names))[levels], np.zeros(len(levels)), tuple(names[j] for j in levels)
        from formulaic.errors import FormulaicError  # which loads pandas: only texts need it
        from formulaic.utils.constraints import LinearConstraints

        try:
            found = LinearConstraints.from_spec(_backquoted(hypotheses, names), variable_names=list(names))
        except (FormulaicError, ValueError, SyntaxError, KeyError):
            raise ArgumentError(
                "hypotheses",
                f"must be like 'x = 0' in the coefficients {', '.join(map(repr, names))}; got {hypotheses!r}.",
            ) from None
        matrix, values = np.atleast_2d(found.constraint_matrix), np.ravel(found.constraint_values)
        labels = [part.strip() for part in hypotheses.split(",")]
        return matrix, values, tuple(labels if len(labels) == len(matrix) else map(str, range(len(matrix))))
    matrix = np.atleast_2d(np.asarray(hypotheses, dtype=float))
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise ArgumentError(
            "hypotheses", f"must have {len(names)} columns, one for each coefficient, got {matrix.shape}."
        )
    return matrix, np.zeros(len(matrix)), tuple(f"c{i}" for i in range(len(matrix)))


def _backquoted(hypotheses: str, names: Sequence[str]) -> str:
    """The hypotheses with names that are no words between backquotes.

    >>> _backquoted("g=a - g=ab = `x y`", ["g=a", "g=ab", "x y"])
    '`g=a` - `g=ab` = `x y`'
    """
    odd = sorted((name for name in names if not name.isidentifier()), key=len, reverse=True)
    pattern = "|".join(["`[^`]*`", *map(re.escape, odd)])
    return re.sub(pattern, lambda found: found[0] if found[0][0] == "`" else f"`{found[0]}`", hypotheses)


def _belongs(name: str, term: str) -> bool:
    """Whether a coefficient is one of a factor's levels, of a term's columns or of an interaction's."""
    parts, wanted = name.split(":"), term.split(":")
    return len(parts) == len(wanted) and all(
        part == own or part.startswith((f"{own}=", f"{own}[", f"C({own})="))
        for part, own in zip(parts, wanted, strict=True)
    )
