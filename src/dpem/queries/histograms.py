"""Where the entries of each coordinate lie between their bounds: a histogram of every column at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpem.queries.narrow import NarrowQuery
from dpem.query import Bound, FloatArray

#: Bins between −1 and 1. One more counts missing values.
BINS = 32


@dataclass(frozen=True)
class Places(NarrowQuery):
    """For each coordinate, and for the response, how many rows lie in each bin. Rows without a response count as
    missing everywhere: a regression is about the others.

    *Lemma.* ℓ∞ sensitivity 1 and ℓ2 sensitivity √(2k) for k coordinates, the response among them. *Proof.* An entry is
    counted in exactly one of the BINS + 1 bins of its coordinate, the last of which counts missing values. Replacing a
    row takes one from a bin of each coordinate and adds one to another. Counts are whole numbers, so nothing is
    rounded. ∎
    """

    with_response: bool = True
    with_columns: bool = True

    @property
    def label(self) -> str:
        return f"histogram of every column, {BINS} bins and one for missing values"

    @property
    def bound(self) -> Bound:
        k = self.schema.width * self.with_columns + self.with_response
        return Bound(linf=1.0, l2=math.sqrt(2.0 * k), size_linf=1.0, size_l2=math.sqrt(k))

    def contributions(self, xp: Any, x: Any, y: Any) -> Any:
        own = xp.where(xp.isnan(y)[:, None], xp.full_like(x, math.nan), x)
        asked = ([own] if self.with_columns else []) + ([y[:, None]] if self.with_response else [])
        return counted(xp, xp.concat(asked, axis=1))


def counted(xp: Any, u: Any) -> Any:
    """How many entries of each column of u lie in each bin; the last bin counts missing ones."""
    if isinstance(u, np.ndarray):
        return _counted(u)
    place = xp.clip(xp.floor((u + 1.0) * (BINS / 2)), 0.0, BINS - 1.0)
    place = xp.where(xp.isnan(u), xp.full_like(u, float(BINS)), place)
    counts = [xp.sum(xp.astype(place == float(b), xp.float64), axis=0) for b in range(BINS + 1)]
    return xp.reshape(xp.stack(counts, axis=1), (-1,))


def _counted(u: FloatArray) -> FloatArray:
    """The same counts in one pass over coordinates in memory: every entry becomes the number of its bin."""
    k = u.shape[1]
    place = (u + 1.0) * (BINS / 2)
    np.clip(place, 0.0, BINS - 1.0, out=place)
    place[np.isnan(place)] = BINS
    place = np.floor(place, out=place) + (BINS + 1) * np.arange(k)
    return np.bincount(place.astype(np.intp).ravel(order="K"), minlength=k * (BINS + 1)).astype(float)
