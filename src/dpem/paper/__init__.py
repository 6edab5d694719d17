"""The paper's algorithms in plain NumPy (:mod:`~dpem.paper.algorithms`), and private estimators of its three models.

Names are imported on first use, as in :mod:`dpem`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpem._extras import on_first_use

if TYPE_CHECKING:
    from dpem.paper import algorithms
    from dpem.paper.estimators import DPMissingRegression, DPSymmetricMixture, DPSymmetricRegression

__all__ = ["DPMissingRegression", "DPSymmetricMixture", "DPSymmetricRegression", "algorithms"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "dpem.paper.algorithms": ("algorithms",),
        "dpem.paper.estimators": ("DPMissingRegression", "DPSymmetricMixture", "DPSymmetricRegression"),
    },
)
