"""The paper's algorithms in plain NumPy (:mod:`~dpem.paper.algorithms`), and private estimators of its three models.

Names are imported on first use, as in :mod:`dpem`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpem._extras import on_first_use

if TYPE_CHECKING:
    from dpem.paper import algorithms
    from dpem.paper.algorithms import (
        algorithm_1,
        algorithm_2,
        algorithm_3,
        algorithm_4,
        algorithm_5,
        algorithm_6,
        algorithm_7,
        algorithm_8,
        high_dimensional_em,
        low_dimensional_em,
        noisy_hard_thresholding,
    )
    from dpem.paper.estimators import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression
    from dpem.paper.planning import plan

__all__ = [
    "DPMissingRegression",
    "DPSymmetricMixture",
    "DPSymmetricRegression",
    "algorithm_1",
    "algorithm_2",
    "algorithm_3",
    "algorithm_4",
    "algorithm_5",
    "algorithm_6",
    "algorithm_7",
    "algorithm_8",
    "algorithms",
    "high_dimensional_em",
    "low_dimensional_em",
    "noisy_hard_thresholding",
    "plan",
]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "dpem.paper.algorithms": tuple(name for name in __all__ if name != "plan" and not name.startswith("DP")),
        "dpem.paper.estimators": tuple(name for name in __all__ if name.startswith("DP")),
        "dpem.paper.planning": ("plan",),
    },
)
