"""The contract of a query: a clipped sum over rows, and its sensitivity to one row.

A model builds queries, a source sums them over chunks, and the curator turns a query's bound into noise. Nothing here
knows about noise, files or models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

#: An array of any library with the array API, and that library's namespace (``xp``). There are no types for them.
Array: TypeAlias = Any
Namespace: TypeAlias = Any

#: The most rows that may be added in the rows' own dtype; longer sums continue in float64. The slack relies on it.
BLOCK = 256


class Chunk(NamedTuple):
    """Consecutive rows: a 2-D float32 or float64 array, and the response where the model has one."""

    X: NDArray[np.floating]
    y: NDArray[np.floating] | None


@dataclass(frozen=True)
class Bound:
    """The sensitivity to one record, stated by the object that clips.

    ``linf`` and ``l2`` bound the change of the *sum* when one record is replaced by any other; ``size_linf`` and
    ``size_l2`` bound one contribution (floating-point slack is proportional to them). ``inf`` means unbounded.

    >>> Bound.symmetric(l2=1.5).l2
    3.0
    """

    linf: float = math.inf
    l2: float = math.inf
    size_linf: float = math.inf
    size_l2: float = math.inf

    def __post_init__(self) -> None:
        if not all(limit >= 0 for limit in (self.linf, self.l2, self.size_linf, self.size_l2)):
            raise ValueError("a bound must not be negative; it is inf where there is none.")

    @classmethod
    def symmetric(cls, *, linf: float = math.inf, l2: float = math.inf) -> Bound:
        """The bound for contributions of norm at most ``linf`` and ``l2`` in any direction: replacing one changes the
        sum by at most twice that. An ℓ2 bound is also an ℓ∞ bound.
        """
        linf = min(linf, l2)
        return cls(linf=2 * linf, l2=2 * l2, size_linf=linf, size_l2=l2)


@runtime_checkable
class Query(Protocol):
    """A bounded query. ``sum`` clips; ``bound`` is what the clipping guarantees, for *every* possible row.

    ``sum(chunk)`` returns the float64 sum of the clipped contributions of the chunk's rows. With ``blocked = True`` it
    may add up to :data:`BLOCK` rows in the rows' dtype, with ``blocked = False`` it adds all rows in float64. Whatever
    a row contains, its contribution must be finite and within the bound. ``label`` describes the query in a few words.

    Two members are optional. ``reads`` holds the indices of the only columns that the query reads, so that a source
    may leave the others unread. ``sums(chunk, rows)`` returns the sums over each group of ``rows`` rows from one pass,
    or None.
    """

    @property
    def label(self) -> str: ...

    @property
    def bound(self) -> Bound: ...

    @property
    def blocked(self) -> bool: ...

    def sum(self, chunk: Chunk) -> FloatArray: ...
