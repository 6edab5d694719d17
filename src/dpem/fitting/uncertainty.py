"""Standard errors, intervals, linear hypotheses and the summary of a fit: post-processing of released numbers."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri

from dpem._validation import ArgumentError, describe, is_fraction
from dpem.query import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Uncertainty:
    """Estimates in the table's units, by name, and their standard errors.

    ``total`` is the standard error. Its square is the sum of the squares of three parts: ``sampling``, the standard
    error of the same estimate without privacy; ``privacy``, the contribution of the noise; ``misfit``, the possible
    bias by clipping and unidentified directions. ``covariance`` is that of the estimates, empty where it is unknown.
    ``note`` says how the errors were computed. ``kinds`` is empty or has one of :data:`KINDS` for each parameter: the
    interval of a "share" is clipped to [0, 1], that of a "size" to [0, ∞), and that of a "positive" parameter, such as
    a variance, is computed on the logarithmic scale.
    """

    names: tuple[str, ...]
    estimate: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    total: FloatArray
    note: str = ""
    kinds: tuple[str, ...] = ()
    misfit: FloatArray = field(default_factory=lambda: np.empty(0))
    covariance: FloatArray = field(default_factory=lambda: UNKNOWN)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        estimate: FloatArray,
        sampling: FloatArray,
        privacy: FloatArray,
        note: str = "",
        kinds: Sequence[str] = (),
        misfit: FloatArray | None = None,
        covariance: FloatArray | None = None,
    ) -> Uncertainty:
        """The record whose ``total`` is computed from the three parts."""
        misfit = np.zeros(len(names)) if misfit is None else misfit
        total, covariance = np.sqrt(sampling**2 + privacy**2 + misfit**2), UNKNOWN if covariance is None else covariance
        parts = (np.asarray(estimate, dtype=float), sampling, privacy, total)
        return cls(tuple(names), *parts, note, tuple(kinds), misfit, covariance)

    def intervals(self, level: float) -> FloatArray:
        """The confidence interval of each parameter, within the parameter's range.

        >>> two, errors = np.array([0.1, 4.0]), np.array([0.1, 1.0])
        >>> Uncertainty.of(["a", "b"], two, errors, 0 * errors, "", ["share", "positive"]).intervals(0.95).round(2)
        array([[0.  , 0.3 ],
               [2.45, 6.53]])
        """
        half_width = _critical_value(level) * self.total
        ends = np.column_stack([self.estimate - half_width, self.estimate + half_width])
        for j, kind in enumerate(self.kinds):
            if kind == "share":
                ends[j] = np.clip(ends[j], 0.0, 1.0)
            elif kind == "size":
                ends[j] = np.maximum(ends[j], 0.0)
            elif kind == "positive" and self.estimate[j] > 0:
                ratio = half_width[j] / self.estimate[j]
                upper = min(math.exp(min(ratio, 9.0)), 1 + 5 * ratio)  # exp overstates errors above the estimate
                ends[j] = self.estimate[j] * math.exp(-ratio), self.estimate[j] * upper
        return ends

    def frame(self, level: float) -> DataFrame:
        """A DataFrame with a row for each parameter, and a method ``as_latex``.

        ``detectable`` is the true size that a test at 5 % detects with power 80 %: 2.8 standard errors.
        """
        low, high = self.intervals(level).T
        columns = {
            "estimate": self.estimate,
            "standard_error": self.total,
            "sampling": self.sampling,
            "privacy": self.privacy,
            "misfit": self.misfit if len(self.misfit) else 0.0,
            "lower": low,
            "upper": high,
            "detectable": DETECTABLE * self.total,
        }
        return _summary_class()(columns, index=list(self.names)).rename_axis("parameter")


#: The covariance where it is unknown.
UNKNOWN: FloatArray = np.empty((0, 0))
#: The ranges of a parameter: any number, [0, 1], [0, ∞), or positive.
KINDS = ("", "share", "size", "positive")
#: The effect in standard errors that a two-sided test at 5 % detects with power 80 %.
DETECTABLE = float(-ndtri(0.025) + ndtri(0.8))


def pandas_of(columns: Mapping[str, object], index: Sequence[str] | None = None) -> DataFrame:
    """The columns as a pandas DataFrame."""
    return _pandas().DataFrame(columns, index=None if index is None else list(index))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise RuntimeError("summary() needs pandas; conf_int() and standard_errors_ do without.") from None
    return pandas


@functools.cache
def _summary_class() -> type[DataFrame]:
    class Summary(_pandas().DataFrame):  # type: ignore[misc]
        """A table of parameters."""

        @property
        def _constructor(self) -> type[DataFrame]:
            return Summary

        def as_latex(self, **options: object) -> str:
            """The table in LaTeX; options are those of ``DataFrame.to_latex``."""
            return str(self.to_latex(**{"float_format": "%.4g", "escape": True, **options}))

    return Summary


@dataclass(frozen=True)
class Contrasts:
    """Linear combinations of coefficients, each of which is compared with a value."""

    names: tuple[str, ...]
    effect: FloatArray
    sd: FloatArray
    value: FloatArray | float = 0.0

    @property
    def statistic(self) -> FloatArray:
        return np.asarray((self.effect - self.value) / self.sd)

    @property
    def pvalue(self) -> FloatArray:
        """Two-sided p-values of the normal distribution."""
        return np.asarray(2 * ndtr(-np.abs(self.statistic)))

    def conf_int(self, level: float = 0.95) -> FloatArray:
        """The confidence interval of each combination."""
        half_width = _critical_value(level) * self.sd
        return np.column_stack([self.effect - half_width, self.effect + half_width])

    def summary_frame(self, level: float = 0.95) -> DataFrame:
        """A DataFrame with a row for each combination."""
        low, high = self.conf_int(level).T
        columns = {"coef": self.effect, "std err": self.sd, "z": self.statistic, "P>|z|": self.pvalue}
        return pandas_of({**columns, "lower": low, "upper": high}, self.names)

    def __str__(self) -> str:
        return str(self.summary_frame().round(4).to_string())


@dataclass(frozen=True)
class WaldTest:
    """A joint test of linear hypotheses: under all, the statistic is χ² with ``df`` degrees of freedom."""

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


def hypotheses_about(names: Sequence[str], hypotheses: object) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """The matrix, the right side and the labels of linear hypotheses about named coefficients."""
    if isinstance(hypotheses, str):
        hypotheses = _normalised(hypotheses, names)
        if hypotheses in names:
            return np.eye(len(names))[[names.index(hypotheses)]], np.zeros(1), (hypotheses,)
        of_term = [j for j, name in enumerate(names) if _belongs(name, hypotheses)]
        if of_term:
            return np.eye(len(names))[of_term], np.zeros(len(of_term)), tuple(names[j] for j in of_term)
        from formulaic.errors import FormulaicError  # here, since it imports pandas
        from formulaic.utils.constraints import LinearConstraints

        try:
            constraints = LinearConstraints.from_spec(*_as_identifiers(hypotheses, names))
        except (FormulaicError, ValueError, SyntaxError, KeyError):
            raise ArgumentError(
                "hypotheses",
                f"must be equations such as '{names[-1]} = 0' in the coefficients {', '.join(map(repr, names))}; "
                f"got {hypotheses!r}.",
            ) from None
        matrix, values = np.atleast_2d(constraints.constraint_matrix), np.ravel(constraints.constraint_values)
        labels = [part.strip() for part in hypotheses.split(",")]
        return matrix, values, tuple(labels if len(labels) == len(matrix) else map(str, range(len(matrix))))
    try:
        matrix = np.atleast_2d(np.asarray(hypotheses, dtype=float))
    except (TypeError, ValueError):
        matrix = np.empty((0, 0))
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        came = f"shape {matrix.shape}" if matrix.size else describe(hypotheses)
        raise ArgumentError(
            "hypotheses", f"must be a text or numbers in {len(names)} columns, one for each coefficient; got {came}."
        )
    return matrix, np.zeros(len(matrix)), tuple(f"c{i}" for i in range(len(matrix)))


def _normalised(hypotheses: str, names: Sequence[str]) -> str:
    """The hypotheses with functions, powers and spaces written as in the names.

    >>> _normalised("I(x^2)=factor(g)=b", ["I(x ** 2)", "C(g)=b"])
    'I(x ** 2)=C(g)=b'
    """
    text = re.sub(r"\b(?:as\.)?factor\(", "C(", hypotheses.replace("^", "**"))
    for name in names:
        tokens = re.findall(r"\w+|\*\*|\S", name)
        if "(" in name:
            text = re.sub(r"\s*".join(map(re.escape, tokens)), name.replace("\\", "\\\\"), text)
    return text


def _as_identifiers(hypotheses: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """The hypotheses and the names with an identifier in place of each name that is none.

    >>> _as_identifiers("g=a - g=ab = x + `x y`", ["g=a", "g=ab", "x", "x y"])
    ('_name0_ - _name1_ = x + _name3_', ['_name0_', '_name1_', 'x', '_name3_'])
    """
    identifiers = {name: name if name.isidentifier() else f"_name{j}_" for j, name in enumerate(names)}
    longest_first = sorted((name for name in names if not name.isidentifier()), key=len, reverse=True)
    replacements = {text: identifiers[name] for name in longest_first for text in (f"`{name}`", name)}
    if replacements:
        pattern = "|".join(map(re.escape, replacements))
        hypotheses = re.sub(pattern, lambda match: replacements[match[0]], hypotheses)
    return hypotheses, list(identifiers.values())


def _belongs(name: str, term: str) -> bool:
    """Whether a coefficient belongs to a term: a level of the factor, or a column of the term or the interaction."""
    parts, term_parts = name.split(":"), term.split(":")
    return len(parts) == len(term_parts) and all(
        part == term_part or part.startswith((f"{term_part}=", f"{term_part}[", f"C({term_part})="))
        for part, term_part in zip(parts, term_parts, strict=True)
    )


def _critical_value(level: float) -> float:
    """The half-width of an interval in standard errors. A level below one half is refused: 1 − level was meant."""
    if is_fraction("level", level) < 0.5:
        raise ArgumentError("level", f"must be the coverage, such as 0.95, not its complement; got {describe(level)}.")
    return float(ndtri(0.5 + level / 2))
