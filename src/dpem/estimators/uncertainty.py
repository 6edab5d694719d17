"""Standard errors, intervals and the summary of a fit: post-processing of what was released, at no price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpem._validation import is_fraction
from dpem.query import FloatArray


@dataclass(frozen=True)
class Uncertainty:
    """Estimates in the table's units, by name, and how far they may be off.

    ``sampling`` is the standard error that the same estimate would have without privacy, ``privacy`` what the noise
    adds, ``total`` both. ``note`` says how they were found. ``lowest`` and ``highest`` are what a parameter can be at
    all: intervals end there. Where there is no limit they are the largest floats, since files hold no infinity.
    """

    names: tuple[str, ...]
    estimate: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    total: FloatArray
    note: str
    lowest: FloatArray
    highest: FloatArray

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        estimate: FloatArray,
        sampling: FloatArray,
        privacy: FloatArray,
        note: str = "",
        *,
        lowest: FloatArray | float = -math.inf,
        highest: FloatArray | float = math.inf,
    ) -> Uncertainty:
        """The record where the two errors are independent: their squares add."""
        found, whole = np.asarray(estimate, dtype=float), np.hypot(sampling, privacy)
        ends = (np.nan_to_num(np.broadcast_to(np.asarray(end, dtype=float), found.shape)) for end in (lowest, highest))
        return cls(tuple(names), found, sampling, privacy, whole, note, *ends)

    def intervals(self, level: float) -> FloatArray:
        """Lower and upper end of each parameter's interval at that level, within what it can be.

        >>> one = np.ones(1)
        >>> Uncertainty.of(["share"], 0.1 * one, 0.1 * one, 0 * one, lowest=0.0, highest=1.0).intervals(0.95).round(2)
        array([[0. , 0.3]])
        """
        reach = float(ndtri(0.5 + is_fraction("level", level) / 2)) * self.total
        low, high = np.maximum(self.estimate - reach, self.lowest), np.minimum(self.estimate + reach, self.highest)
        return np.column_stack([low, high])

    def rows(self, level: float = 0.95) -> list[dict[str, Any]]:
        """One record a parameter, as :meth:`summary` shows it.

        ``detectable`` is the true size that would be told from 0 in four fits of five: 2.8 standard errors.
        """
        ends = self.intervals(level)
        return [
            {
                "parameter": name,
                "estimate": float(self.estimate[j]),
                "standard_error": float(self.total[j]),
                "sampling": float(self.sampling[j]),
                "privacy": float(self.privacy[j]),
                "lower": float(ends[j, 0]),
                "upper": float(ends[j, 1]),
                "detectable": float(DETECTABLE * self.total[j]),
            }
            for j, name in enumerate(self.names)
        ]


#: Standard errors between 0 and an effect that a test at 5 % finds four times of five.
DETECTABLE = float(-ndtri(0.025) + ndtri(0.8))


def frame(records: Sequence[dict[str, Any]]) -> Any:
    """The records as a pandas DataFrame, indexed by the parameter."""
    try:
        import pandas
    except ImportError:
        raise RuntimeError("summary() needs pandas; conf_int() and standard_errors_ do without.") from None
    return pandas.DataFrame(list(records)).set_index("parameter")
