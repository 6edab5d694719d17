"""Numbers that studies have set, not the user. Unless another is named, the study is
``python -m studies.mixture_regression targets`` with seeds below 1000.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Settings of the fit of a mixture of regressions.

    Attributes
    ----------
    sizes, moments, directions, cells, choice, check : float
        Parts of ρ: scales of the columns, second moments, directions in which residuals spread unevenly, counts in
        cells, the choice of a start, the fit check. The scores get the rest.
    scores : int
        Score queries.
    growth : float
        How many times a score query's price exceeds the one before it.
    cautions : tuple of three floats
        How near to EM's own step those of the first, the middle and the last score query are; between them it changes
        evenly. With ``scores`` and ``growth`` set on the tuning half of ``studies.mixture_regression public``.
    starts : int
        Starts without privacy, beside those of the counts.
    narrow : float
        A component is called a point mass where its residual spread is below this part of the largest.
    unstable : float
        Components are called unstable where errors put more than this share of rows into another one
        (``python -m studies.mixture_regression public`` on the tuning half).
    """

    sizes: float = 0.08
    moments: float = 0.13
    directions: float = 0.12
    cells: float = 0.12
    choice: float = 0.04
    check: float = 0.08
    scores: int = 10
    growth: float = 1.3
    cautions: tuple[float, float, float] = (0.5, 0.5, 0.2)
    starts: int = 6
    narrow: float = 0.02
    unstable: float = 0.025


TUNING = Tuning()
