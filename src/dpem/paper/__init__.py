"""The paper's algorithms in plain NumPy (:mod:`~dpem.paper.algorithms`), and private estimators of its three models.

Names are imported on first use, as in :mod:`dpem`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpem.paper' has no attribute {name!r}")
    if name == "algorithms":
        return import_module("dpem.paper.algorithms")
    home = "planning" if name == "plan" else "estimators" if name.startswith("DP") else "algorithms"
    return getattr(import_module(f"dpem.paper.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
