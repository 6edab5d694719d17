"""A query: a clipped sum over rows, and its sensitivity to one row.

This module is the contract between the packages. A model builds queries, a source sums them over chunks, and the
curator turns a query's bound into noise. Nothing here knows about noise, files or models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

#: An array of any library with the array API, and that library's namespace (``xp``). No library publishes types for
#: them, so a checker sees Any.
Array: TypeAlias = Any
Namespace: TypeAlias = Any

#: Rows that may be added in the rows' own dtype; longer sums continue in float64. The slack of a sum relies on it.
BLOCK = 256


class Chunk(NamedTuple):
    """Consecutive rows: a 2-D float32 or float64 array, and the response where the model has one."""

    X: NDArray[np.floating]
    y: NDArray[np.floating] | None


@dataclass(frozen=True)
class Bound:
    """What the object that clips states about one record.

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
        """Contributions of norm at most ``linf`` / ``l2`` in any direction: replacing one moves the sum by twice that.

        An ℓ2 bound is also an ℓ∞ bound, which is used where no better one is given.
        """
        linf = min(linf, l2)
        return cls(linf=2 * linf, l2=2 * l2, size_linf=linf, size_l2=l2)


@runtime_checkable
class Query(Protocol):
    """A bounded query. ``sum`` clips; ``bound`` is what the clipping guarantees, for *every* possible row.

    ``sum(chunk)`` returns the float64 sum of the clipped contributions of the chunk's rows. It may add at most
    :data:`BLOCK` rows in the rows' dtype (``blocked = True``) or must add all of them in float64 (``blocked = False``).
    Whatever a row contains, its contribution must be finite and within the bound. ``label`` describes the query in a
    few words. A query about few columns may have an attribute ``reads`` that names them; a source may then leave the
    others unread. A query that can sum every so many rows at once may have a method ``sums(chunk, rows)``, which is
    None where it cannot.
    """

    @property
    def label(self) -> str: ...

    @property
    def bound(self) -> Bound: ...

    @property
    def blocked(self) -> bool: ...

    def sum(self, chunk: Chunk) -> FloatArray: ...
