"""Standard errors, intervals and the summary of a fit: post-processing of what was released, at no price."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpem._validation import is_fraction
from dpem.query import FloatArray


@dataclass(frozen=True)
class Uncertainty:
    """Estimates in the table's units, by name, and how far they may be off.

    ``total`` is the standard error. Its parts, whose squares add up to its own: ``sampling``, the standard error that
    the same estimate would have without privacy; ``privacy``, what the noise adds; ``misfit``, what clipping may hide
    and what the rows leave undecided. ``covariance`` is that of the estimates, empty where it is not known.
    ``note`` says how they were found. ``kinds`` has a word of :data:`KINDS` for each parameter, or none at all: the
    interval of a "share" ends at 0 and 1, that of a "size" at 0, that of what is "positive", such as a variance, is of
    the logarithm, as its error grows with its size.
    """

    names: tuple[str, ...]
    estimate: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    total: FloatArray
    note: str = ""
    kinds: tuple[str, ...] = ()
    misfit: FloatArray = field(default_factory=lambda: np.empty(0))
    covariance: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

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
        """The record where the parts of an error are independent: their squares add."""
        rest = np.zeros(len(names)) if misfit is None else misfit
        whole = np.sqrt(sampling**2 + privacy**2 + rest**2)
        values, joint = np.asarray(estimate, dtype=float), np.empty((0, 0)) if covariance is None else covariance
        return cls(tuple(names), values, sampling, privacy, whole, note, tuple(kinds), rest, joint)

    def intervals(self, level: float) -> FloatArray:
        """Lower and upper end of each parameter's interval at that level, within what it can be.

        >>> two, errors = np.array([0.1, 4.0]), np.array([0.1, 1.0])
        >>> Uncertainty.of(["a", "b"], two, errors, 0 * errors, "", ["share", "positive"]).intervals(0.95).round(2)
        array([[0.  , 0.3 ],
               [2.45, 6.53]])
        """
        reach = float(ndtri(0.5 + is_fraction("level", level) / 2)) * self.total
        ends = np.column_stack([self.estimate - reach, self.estimate + reach])
        for j, kind in enumerate(self.kinds):
            if kind == "share":
                ends[j] = np.clip(ends[j], 0.0, 1.0)
            elif kind == "size":
                ends[j] = np.maximum(ends[j], 0.0)
            elif kind == "positive" and self.estimate[j] > 0:
                ratio = reach[j] / self.estimate[j]
                most = min(math.exp(min(ratio, 9.0)), 1 + 5 * ratio)  # an error beyond the estimate means little
                ends[j] = self.estimate[j] * math.exp(-ratio), self.estimate[j] * most
        return ends

    def rows(self, level: float = 0.95) -> list[dict[str, Any]]:
        """One record a parameter, as :meth:`summary` shows it.

        ``detectable`` is the true size that four fits of five would distinguish from 0: 2.8 standard errors.
        """
        ends = self.intervals(level)
        return [
            {
                "parameter": name,
                "estimate": float(self.estimate[j]),
                "standard_error": float(self.total[j]),
                "sampling": float(self.sampling[j]),
                "privacy": float(self.privacy[j]),
                "misfit": float(self.misfit[j]) if len(self.misfit) else 0.0,
                "lower": float(ends[j, 0]),
                "upper": float(ends[j, 1]),
                "detectable": float(DETECTABLE * self.total[j]),
            }
            for j, name in enumerate(self.names)
        ]


#: What a parameter may be: any number, a part of a whole, one that is not negative, or a positive one.
KINDS = ("", "share", "size", "positive")
#: Standard errors between 0 and an effect that a test at 5 % finds four times of five.
DETECTABLE = float(-ndtri(0.025) + ndtri(0.8))


def frame(records: Sequence[dict[str, Any]]) -> Any:
    """The records as a pandas DataFrame, indexed by the parameter, with a method ``as_latex``."""
    return _summary_class()(list(records)).set_index("parameter")


def pandas_of(columns: dict[str, Any], index: Sequence[str] | None) -> Any:
    """The columns as a pandas DataFrame."""
    return _pandas().DataFrame(columns, index=None if index is None else list(index))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise RuntimeError("summary() needs pandas; conf_int() and standard_errors_ do without.") from None
    return pandas


@functools.cache
def _summary_class() -> Any:
    class Summary(_pandas().DataFrame):  # type: ignore[misc]
        """A table of parameters."""

        @property
        def _constructor(self) -> Any:
            return Summary

        def as_latex(self, **options: Any) -> str:
            """The table in LaTeX; options are those of ``DataFrame.to_latex``."""
            return str(self.to_latex(**{"float_format": "%.4g", "escape": True, **options}))

    return Summary
